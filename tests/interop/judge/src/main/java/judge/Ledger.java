package judge;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.util.Map;

/** The store of one member of a DLedger group: loaded and recovered, and nothing else of the member started. */
final class Ledger {
    static void run(Request request, Map<String, Object> answer) {
        String id = request.config.get("dLegerSelfId");
        DLedgerConfig config = new DLedgerConfig();
        config.setStoreBaseDir(request.store);
        config.setGroup("judge");
        config.setSelfId(id);
        config.setPeers(id + "-127.0.0.1:1");
        config.setMappedFileSizeForEntryData(Integer.parseInt(request.config.get("mappedFileSizeCommitLog")));
        if (request.config.containsKey("storePathDLedgerCommitLog")) {
            config.setDataStorePath(request.config.get("storePathDLedgerCommitLog"));
        }
        DLedgerMmapFileStore store = new DLedgerMmapFileStore(config, new MemberState(config));
        store.load(); // ends the JVM where a file has another length
        store.recover();
        answer.put("beginIndex", store.getLedgerBeginIndex());
        answer.put("endIndex", store.getLedgerEndIndex());
        answer.put("endTerm", store.getLedgerEndTerm());
        answer.put("committedIndex", store.getCommittedIndex());
        answer.put("committedPosition", store.getCommittedPos());
        answer.put("end", store.getWritePos());
        answer.put("indexEnd", store.getIndexFileList().getMaxWrotePosition());
        store.getDataFileList().shutdown(1000);
        store.getIndexFileList().shutdown(1000);
    }

    private Ledger() {
    }
}
