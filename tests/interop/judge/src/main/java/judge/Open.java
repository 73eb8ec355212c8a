package judge;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** What the engine makes of a store: load it, start it, and read everything that it shows. */
final class Open {
    private static final int MAX_QUERY_RESULTS = 64;
    private static final int PHYSICAL_OFFSET_AT = 28; // in a commit-log record

    static void run(Request request, Map<String, Object> answer) throws Exception {
        Session session = new Session(request);
        DefaultMessageStore store = session.store;
        long begin = System.nanoTime();
        boolean loaded = store.load();
        answer.put("loadMillis", millisSince(begin));
        answer.put("loadOk", loaded);
        if (loaded) {
            Release.settle(store);
        }
        answer.put("afterLoad", state(store));
        if (loaded && request.start) {
            begin = System.nanoTime();
            session.start();
            answer.put("startMillis", millisSince(begin));
            answer.put("dispatchBehind", store.dispatchBehindBytes());
            answer.put("afterStart", state(store));
        }
        if (loaded) {
            if (request.messages) {
                answer.put("messages", messages(store));
            }
            answer.put("queries", queries(store, request.keys));
            answer.put("offsetByTime", offsetsByTime(store, request.times));
            answer.put("getMessage", gets(store, request.gets));
        }
        begin = System.nanoTime();
        session.stop();
        answer.put("stopMillis", millisSince(begin));
    }

    static long millisSince(long nanos) {
        return (System.nanoTime() - nanos) / 1_000_000;
    }

    static Map<String, Object> state(DefaultMessageStore store) throws Exception {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("minPhyOffset", store.getMinPhyOffset());
        state.put("maxPhyOffset", store.getMaxPhyOffset());
        List<Map<String, Object>> queues = Release.otherQueues(store);
        for (ConsumeQueue queue : queues(store)) {
            queues.add(range(queue.getTopic(), queue.getQueueId(), queue.getMinOffsetInQueue(),
                queue.getMaxOffsetInQueue()));
        }
        state.put("queues", queues);
        return state;
    }

    static Map<String, Object> range(String topic, int queueId, long min, long max) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", topic);
        row.put("queueId", queueId);
        row.put("minOffset", min);
        row.put("maxOffset", max);
        return row;
    }

    private static List<ConsumeQueue> queues(DefaultMessageStore store) {
        List<ConsumeQueue> queues = Release.queues(store);
        queues.sort(Comparator.comparing(ConsumeQueue::getTopic).thenComparing(ConsumeQueue::getQueueId));
        return queues;
    }

    /** Every entry of every queue with the message that the engine reads for it, null where it reads none. */
    private static List<Map<String, Object>> messages(DefaultMessageStore store) throws Exception {
        List<Map<String, Object>> rows = Release.otherEntries(store);
        for (ConsumeQueue queue : queues(store)) {
            long index = queue.getMinOffsetInQueue();
            while (index < queue.getMaxOffsetInQueue()) {
                SelectMappedBufferResult rest = queue.getIndexBuffer(index); // up to the end of that file
                if (rest == null) {
                    index = queue.rollNextFile(index);
                    continue;
                }
                try {
                    ByteBuffer units = rest.getByteBuffer();
                    for (; units.remaining() >= ConsumeQueue.CQ_STORE_UNIT_SIZE; index++) {
                        rows.add(entry(store, queue.getTopic(), queue.getQueueId(), index, units.getLong(),
                            units.getInt(), units.getLong()));
                    }
                } finally {
                    rest.release();
                }
            }
        }
        return rows;
    }

    static Map<String, Object> entry(DefaultMessageStore store, String topic, int queueId, long index, long offset,
        int size, long tagsCode) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("cqTopic", topic);
        row.put("cqQueueId", queueId);
        row.put("cqOffset", index);
        row.put("cqPhysicalOffset", offset);
        row.put("cqSize", size);
        row.put("cqTagsCode", tagsCode);
        SelectMappedBufferResult record = store.selectOneMessageByOffset(offset, size);
        try {
            row.put("message", record == null ? null : message(record.getByteBuffer()));
        } catch (OutOfMemoryError e) {
            row.put("message", null); // the decoder believed a length that is none: the entry points to no record
        } finally {
            if (record != null) {
                record.release();
            }
        }
        return row;
    }

    private static Map<String, Object> message(ByteBuffer record) throws Exception {
        MessageExt message = MessageDecoder.decode(record.duplicate(), true, false);
        if (message == null) {
            return null;
        }
        byte[] body = message.getBody();
        if ((message.getSysFlag() & MessageSysFlag.COMPRESSED_FLAG) != 0) {
            // A decode of its own: the 5.x decoder takes the flag away when it decompresses.
            MessageExt plain = MessageDecoder.decode(record.duplicate(), true, true);
            if (plain == null) {
                return null;
            }
            body = plain.getBody();
        }
        body = body == null ? new byte[0] : body;
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("storeSize", message.getStoreSize());
        row.put("sysFlag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("bodyCrc", message.getBodyCRC());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("bornHost", host((InetSocketAddress) message.getBornHost()));
        row.put("storeHost", host((InetSocketAddress) message.getStoreHost()));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.put("offsetMsgId", MessageDecoder.createMessageId(
            ByteBuffer.allocate(message.getStoreHostBytes().remaining() + Long.BYTES),
            message.getStoreHostBytes(), message.getCommitLogOffset()));
        row.put("msgId", message.getMsgId());
        row.put("properties", message.getProperties() == null ? Map.of() : new TreeMap<>(message.getProperties()));
        row.put("bodyLength", body.length);
        row.put("bodySha256", hex(MessageDigest.getInstance("SHA-256").digest(body)));
        return row;
    }

    private static String host(InetSocketAddress address) {
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte b : bytes) {
            text.append(Character.forDigit(b >> 4 & 0xf, 16)).append(Character.forDigit(b & 0xf, 16));
        }
        return text.toString();
    }

    private static List<Map<String, Object>> queries(DefaultMessageStore store, List<Request.Key> keys)
        throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (Request.Key key : keys) {
            List<Long> offsets = new ArrayList<>();
            try {
                QueryMessageResult found =
                    store.queryMessage(key.topic, key.key, MAX_QUERY_RESULTS, 0, Long.MAX_VALUE);
                for (ByteBuffer record : found.getMessageBufferList()) {
                    if (record.limit() >= PHYSICAL_OFFSET_AT + Long.BYTES) { // as long as a damaged size field says
                        offsets.add(record.getLong(PHYSICAL_OFFSET_AT));
                    }
                }
                found.release();
            } catch (OutOfMemoryError e) {
                offsets = null; // the decoder believed a length that is none
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", key.topic);
            row.put("key", key.key);
            row.put("physicalOffsets", offsets);
            rows.add(row);
        }
        return rows;
    }

    private static List<Map<String, Object>> offsetsByTime(DefaultMessageStore store, List<Request.Time> times) {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (Request.Time time : times) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", time.topic);
            row.put("queueId", time.queueId);
            row.put("timestamp", time.timestamp);
            row.put("offset", store.getOffsetInQueueByTime(time.topic, time.queueId, time.timestamp));
            rows.add(row);
        }
        return rows;
    }

    private static List<Map<String, Object>> gets(DefaultMessageStore store, List<Request.Get> gets) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (Request.Get get : gets) {
            GetMessageResult result =
                store.getMessage("judge", get.topic, get.queueId, get.offset, get.maxMsgNums, null);
            if (result == null) {
                throw new IllegalStateException("the engine serves no reads before start()");
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", get.topic);
            row.put("queueId", get.queueId);
            row.put("offset", get.offset);
            row.put("maxMsgNums", get.maxMsgNums);
            row.put("status", result.getStatus().name());
            row.put("nextBeginOffset", result.getNextBeginOffset());
            row.put("minOffset", result.getMinOffset());
            row.put("maxOffset", result.getMaxOffset());
            row.put("count", result.getMessageCount());
            result.release();
            rows.add(row);
        }
        return rows;
    }

    private Open() {
    }
}
