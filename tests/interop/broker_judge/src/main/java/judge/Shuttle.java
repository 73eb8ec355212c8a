package judge;

import com.google.gson.Gson;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages through a name server and waits until a consumer has got them.
 *
 * Arguments: name server, topic, how many. Prints one line of JSON: keys to the queue that they were sent to, keys to
 * the queue that they were consumed from.
 */
public final class Shuttle {
    private static final int LOOKS = 600;
    private static final int PAUSE = 100; // ms

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // a shutdown waits for every connection
    }

    private static void run(String[] arguments) throws Exception {
        String names = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        Map<String, String> sent = new TreeMap<>();
        Map<String, String> seen = new ConcurrentHashMap<>();

        DefaultMQProducer producer = new DefaultMQProducer("shuttle-producer");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        for (int number = 0; number < count; number++) {
            String key = "key-" + number;
            SendResult result = producer.send(new Message(topic, "tag", key, key.getBytes(StandardCharsets.UTF_8)));
            sent.put(key, result.getMessageQueue().getBrokerName() + " " + result.getMessageQueue().getQueueId());
        }

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("shuttle-" + topic);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("shuttle-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.put(new String(message.getBody(), StandardCharsets.UTF_8),
                    context.getMessageQueue().getBrokerName() + " " + message.getQueueId());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int look = 0; look < LOOKS && seen.size() < count; look++) {
            Thread.sleep(PAUSE);
        }
        System.out.println(new Gson().toJson(List.of(sent, new TreeMap<>(seen))));
    }

    private Shuttle() {
    }
}
