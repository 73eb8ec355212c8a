package judge;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.RocksDBConsumeQueueOffsetTable;

/** Queues in RocksDB. */
final class Rocks {
    private static final int PATIENCE_MILLIS = 20_000;

    /** The thread that writes is idle: all that was handed to it is in the database. */
    static void settle(DefaultMessageStore store) throws Exception {
        Object service = field(store.getQueueStore(), "groupCommitService");
        Collection<?> waiting = (Collection<?>) field(service, "buffer");
        Collection<?> taken = (Collection<?>) field(service, "requests");
        Thread thread = (Thread) field(ServiceThread.class, service, "thread");
        long end = System.currentTimeMillis() + PATIENCE_MILLIS;
        while (!waiting.isEmpty() || !taken.isEmpty() || thread.getState() != Thread.State.TIMED_WAITING) {
            if (System.currentTimeMillis() > end) {
                throw new TimeoutException("what is dispatched does not get into RocksDB");
            }
            Thread.sleep(1);
        }
    }

    static List<Map<String, Object>> queues(DefaultMessageStore store) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (ConsumeQueueInterface queue : all(store)) {
            rows.add(Open.range(queue.getTopic(), queue.getQueueId(), queue.getMinOffsetInQueue(),
                queue.getMaxOffsetInQueue()));
        }
        return rows;
    }

    static List<Map<String, Object>> entries(DefaultMessageStore store) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (ConsumeQueueInterface queue : all(store)) {
            for (long index = queue.getMinOffsetInQueue(); index < queue.getMaxOffsetInQueue(); index++) {
                CqUnit unit = queue.get(index);
                if (unit != null) {
                    rows.add(Open.entry(store, queue.getTopic(), queue.getQueueId(), index, unit.getPos(),
                        unit.getSize(), unit.getTagsCode()));
                }
            }
        }
        return rows;
    }

    private static List<ConsumeQueueInterface> all(DefaultMessageStore store) throws Exception {
        List<ConsumeQueueInterface> queues = new ArrayList<>();
        for (Map.Entry<String, Map<Integer, Boolean>> topic : names(store).entrySet()) {
            for (int queueId : topic.getValue().keySet()) {
                queues.add(store.getQueueStore().findOrCreateConsumeQueue(topic.getKey(), queueId));
            }
        }
        return queues;
    }

    /** Topics and ids of all queues that the database has an end of. */
    private static Map<String, Map<Integer, Boolean>> names(DefaultMessageStore store) throws Exception {
        Map<String, Map<Integer, Boolean>> names = new TreeMap<>();
        RocksDBConsumeQueueOffsetTable table =
            (RocksDBConsumeQueueOffsetTable) field(store.getQueueStore(), "rocksDBConsumeQueueOffsetTable");
        table.forEach(entry -> true,
            entry -> names.computeIfAbsent(entry.topic, name -> new TreeMap<>()).put(entry.queueId, true));
        return names;
    }

    private static Object field(Object of, String name) throws Exception {
        return field(of.getClass(), of, name);
    }

    private static Object field(Class<?> type, Object of, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private Rocks() {
    }
}
