package judge;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask by themselves, and those that answer requests. */
final class Pulls {
    private static final String NAME = "lab-a";

    private static MessageQueue queue(JsonObject request) {
        return new MessageQueue(request.get("topic").getAsString(), NAME, request.get("queueId").getAsInt());
    }

    static Map<String, Object> row(Message message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("keys", message.getKeys());
        row.put("tags", message.getTags());
        row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        if (message instanceof MessageExt) {
            MessageExt stored = (MessageExt) message;
            row.put("queueId", stored.getQueueId());
            row.put("queueOffset", stored.getQueueOffset());
            row.put("msgId", stored.getMsgId());
        }
        return row;
    }

    static List<Map<String, Object>> rows(List<? extends Message> messages) {
        List<Map<String, Object>> rows = new ArrayList<>();
        messages.forEach(message -> rows.add(row(message)));
        return rows;
    }

    static Object pull(String address, JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.get("group").getAsString());
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("pull-" + System.nanoTime());
        consumer.start();
        try {
            MessageQueue queue = queue(request);
            consumer.fetchSubscribeMessageQueues(queue.getTopic());
            PullResult result =
                consumer.pull(queue, "*", request.get("offset").getAsLong(), request.get("count").getAsInt());
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("status", result.getPullStatus().name());
            told.put("next", result.getNextBeginOffset());
            told.put("min", result.getMinOffset());
            told.put("max", result.getMaxOffset());
            told.put("messages", rows(result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList()));
            return told;
        } finally {
            consumer.shutdown();
        }
    }

    static Object poll(String address, JsonObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.get("group").getAsString());
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("poll-" + System.nanoTime());
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            MessageQueue queue = queue(request);
            consumer.fetchMessageQueues(queue.getTopic());
            consumer.assign(List.of(queue));
            consumer.seek(queue, request.get("offset").getAsLong());
            List<MessageExt> found = new ArrayList<>();
            for (int tries = 0; tries < 60 && found.size() < request.get("count").getAsInt(); tries++) {
                found.addAll(consumer.poll(1000));
            }
            consumer.commitSync();
            return rows(found);
        } finally {
            consumer.shutdown();
        }
    }

    static DefaultMQPushConsumer replier(String address, String group, String topic, DefaultMQProducer producer)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("reply-" + group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8))
                        .getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body), 3000);
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** In 5.3.3 the callback is told twice: of no message when the request is stored, then of the reply. */
    static Object askLater(DefaultMQProducer producer, Message message, int patience) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                if (answer != null) {
                    reply.complete(answer);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, patience);
        return row(reply.get(patience, TimeUnit.MILLISECONDS));
    }

    private Pulls() {
    }
}
