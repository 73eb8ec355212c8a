package judge;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Rates and times, taken where the clients are. */
final class Load {
    /** Messages a second: "count" messages of "size" bytes, by "threads", in batches of "batch". */
    static Object rate(DefaultMQProducer producer, JsonObject request) throws Exception {
        int count = request.get("count").getAsInt();
        int batch = request.get("batch").getAsInt();
        String topic = request.get("topic").getAsString();
        byte[] body = new byte[request.get("size").getAsInt()];
        AtomicInteger left = new AtomicInteger(count / batch);
        int threads = request.get("threads").getAsInt();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        AtomicInteger failed = new AtomicInteger();
        long start = System.nanoTime();
        for (int thread = 0; thread < threads; thread++) {
            pool.execute(() -> {
                while (left.getAndDecrement() > 0) {
                    try {
                        if (batch == 1) {
                            producer.send(new Message(topic, body));
                        } else {
                            List<Message> messages = new ArrayList<>(batch);
                            for (int number = 0; number < batch; number++) {
                                messages.add(new Message(topic, body));
                            }
                            producer.send(messages);
                        }
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS);
        double seconds = (System.nanoTime() - start) / 1e9;
        return Map.of("rate", count / seconds, "failed", failed.get());
    }

    /** Milliseconds that sends take at a fixed "rate" for "seconds": the middle one, and that of 99 and 100 %. */
    static Object paced(DefaultMQProducer producer, JsonObject request) throws Exception {
        int rate = request.get("rate").getAsInt();
        int count = rate * request.get("seconds").getAsInt();
        String topic = request.get("topic").getAsString();
        byte[] body = new byte[128];
        long[] taken = new long[count];
        ExecutorService pool = Executors.newFixedThreadPool(16);
        long start = System.nanoTime();
        for (int number = 0; number < count; number++) {
            long due = start + number * 1_000_000_000L / rate;
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            int index = number;
            pool.execute(() -> {
                try {
                    producer.send(new Message(topic, body));
                    taken[index] = System.nanoTime() - due;
                } catch (Exception error) {
                    taken[index] = Long.MAX_VALUE;
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS);
        Arrays.sort(taken);
        return Map.of("p50", taken[count / 2] / 1e6, "p99", taken[count * 99 / 100] / 1e6, "most", taken[count - 1] / 1e6);
    }

    /** Messages a second that a push consumer takes of "count" that are there. */
    static Object drain(String address, JsonObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.get("group").getAsString());
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("drain-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(request.get("topic").getAsString(), "*");
        CountDownLatch left = new CountDownLatch(request.get("count").getAsInt());
        long[] first = new long[1];
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (first) {
                if (first[0] == 0) {
                    first[0] = System.nanoTime();
                }
            }
            messages.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = left.await(10, TimeUnit.MINUTES);
        double seconds = (System.nanoTime() - first[0]) / 1e9;
        consumer.shutdown();
        return Map.of("rate", request.get("count").getAsInt() / seconds, "all", all);
    }

    private Load() {
    }
}
