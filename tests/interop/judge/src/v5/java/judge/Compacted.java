package judge;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.GetMessageResult;

/** Reads of compacted topics, as consumers get them after load and start. */
final class Compacted {
    private static final int BODY_CRC_AT = 8; // in a record
    private static final int QUEUE_OFFSET_AT = 20;

    static void run(Request request, Map<String, Object> answer) throws Exception {
        Session session = new Session(request);
        boolean loaded = session.store.load();
        answer.put("loadOk", loaded);
        if (loaded) {
            session.start();
            List<Object> rows = new ArrayList<>();
            for (Request.Get get : request.gets) {
                rows.add(read(session, get));
            }
            answer.put("reads", rows);
        }
        session.stop();
    }

    private static Map<String, Object> read(Session session, Request.Get get) {
        Map<String, Object> row = new LinkedHashMap<>();
        GetMessageResult result;
        try {
            result = session.store.getMessage("judge", get.topic, get.queueId, get.offset, get.maxMsgNums, null);
        } catch (RuntimeException e) { // of damaged units
            row.put("error", e.toString());
            return row;
        }
        row.put("status", result.getStatus().name());
        row.put("next", result.getNextBeginOffset());
        row.put("min", result.getMinOffset());
        row.put("max", result.getMaxOffset());
        List<Object> messages = new ArrayList<>();
        for (ByteBuffer record : result.getMessageBufferList()) {
            messages.add(record.limit() < QUEUE_OFFSET_AT + Long.BYTES ? null
                : List.of(record.getLong(QUEUE_OFFSET_AT), record.getInt(BODY_CRC_AT)));
        }
        row.put("messages", messages);
        result.release();
        return row;
    }

    private Compacted() {
    }
}
