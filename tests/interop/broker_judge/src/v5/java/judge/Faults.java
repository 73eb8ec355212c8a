package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.common.ThreadLocalIndex;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Which queues the client of 5.x chooses, of "queues" [broker, id] from a number on, when brokers have answered and failed
 * as "events" say: [broker, ms, isolation, reachable] each. Also how many ms longer each broker is left out.
 */
final class Faults {
    static Object choose(JsonObject request) throws Exception {
        ClientConfig config = new ClientConfig();
        config.setSendLatencyEnable(request.get("tolerant").getAsBoolean());
        MQFaultStrategy strategy = new MQFaultStrategy(config, broker -> broker, (address, timeout) -> true);
        try {
            for (JsonElement one : request.getAsJsonArray("events")) {
                var event = one.getAsJsonArray();
                strategy.updateFaultItem(event.get(0).getAsString(), event.get(1).getAsLong(),
                    event.get(2).getAsBoolean(), event.get(3).getAsBoolean());
            }
            TopicPublishInfo info = new TopicPublishInfo();
            for (JsonElement one : request.getAsJsonArray("queues")) {
                var queue = one.getAsJsonArray();
                info.getMessageQueueList().add(new MessageQueue("T", queue.get(0).getAsString(), queue.get(1).getAsInt()));
            }
            @SuppressWarnings("unchecked")
            ThreadLocal<Integer> index =
                (ThreadLocal<Integer>) field(ThreadLocalIndex.class, info.getSendWhichQueue(), "threadLocalIndex");
            index.set(request.get("index").getAsInt());
            String last = request.get("last").isJsonNull() ? null : request.get("last").getAsString();
            List<Object> chosen = new ArrayList<>();
            for (int number = 0; number < request.get("count").getAsInt(); number++) {
                MessageQueue queue = strategy.selectOneMessageQueue(info, last, false);
                chosen.add(List.of(queue.getBrokerName(), queue.getQueueId()));
            }
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("chosen", chosen);
            told.put("leftOut", leftOut(strategy));
            return told;
        } finally {
            strategy.shutdown();
        }
    }

    private static Map<String, Long> leftOut(MQFaultStrategy strategy) throws Exception {
        Object tolerance = field(MQFaultStrategy.class, strategy, "latencyFaultTolerance");
        Map<?, ?> items = (Map<?, ?>) field(tolerance.getClass(), tolerance, "faultItemTable");
        Map<String, Long> left = new LinkedHashMap<>();
        for (Map.Entry<?, ?> item : items.entrySet()) {
            long start = (Long) field(item.getValue().getClass(), item.getValue(), "startTimestamp");
            left.put((String) item.getKey(), Math.max(start - System.currentTimeMillis(), 0));
        }
        return left;
    }

    private static Object field(Class<?> type, Object of, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private Faults() {
    }
}
