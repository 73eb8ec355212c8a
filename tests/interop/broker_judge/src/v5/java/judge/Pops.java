package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * The client of 5.x as it pops, message by message.
 *
 * <pre>
 * {"command": "pop", "group": g, "topic": t, "queueId": q, "count": n, "invisible": ms, "poll": ms, "order": true,
 *  "attempt": id, "start": 0 | 1, "expression": tags}   what it gets: status, rest, and messages with their handles
 * {"command": "ack", "group": g, "topic": t, "handle": of a message}
 * {"command": "batchAck", "group": g, "topic": t, "handles": [of messages]}
 * {"command": "invisible", "group": g, "topic": t, "handle": of a message, "ms": from now on}   the new handle
 * </pre>
 */
final class Pops {
    private static final int PATIENCE = 60_000;
    private static final String NAME = "lab-a";

    static Object answer(DefaultMQProducer producer, String broker, JsonObject request) throws Exception {
        MQClientAPIImpl client = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl();
        String group = request.get("group").getAsString();
        String topic = request.get("topic").getAsString();
        Told told = new Told();
        switch (request.get("command").getAsString()) {
            case "pop":
                return pop(client, broker, group, topic, request);
            case "ack": {
                String handle = request.get("handle").getAsString();
                String[] parts = ExtraInfoUtil.split(handle);
                AckMessageRequestHeader header = new AckMessageRequestHeader();
                header.setConsumerGroup(group);
                header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
                header.setQueueId(ExtraInfoUtil.getQueueId(parts));
                header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
                header.setExtraInfo(handle);
                client.ackMessageAsync(broker, PATIENCE, told, header);
                return told.get();
            }
            case "batchAck": {
                List<String> handles = new ArrayList<>();
                for (JsonElement one : request.getAsJsonArray("handles")) {
                    handles.add(one.getAsString());
                }
                client.batchAckMessageAsync(broker, PATIENCE, told, topic, group, handles);
                return told.get();
            }
            default: {
                String handle = request.get("handle").getAsString();
                String[] parts = ExtraInfoUtil.split(handle);
                ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
                header.setConsumerGroup(group);
                header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
                header.setQueueId(ExtraInfoUtil.getQueueId(parts));
                header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
                header.setExtraInfo(handle);
                header.setInvisibleTime(request.get("ms").getAsLong());
                client.changeInvisibleTimeAsync(NAME, broker, header, PATIENCE, told);
                return told.get();
            }
        }
    }

    private static Object pop(MQClientAPIImpl client, String broker, String group, String topic, JsonObject request)
            throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(request.has("queueId") ? request.get("queueId").getAsInt() : -1);
        header.setMaxMsgNums(request.has("count") ? request.get("count").getAsInt() : 32);
        header.setInvisibleTime(request.get("invisible").getAsLong());
        header.setPollTime(request.has("poll") ? request.get("poll").getAsLong() : 0);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(request.has("start") ? request.get("start").getAsInt() : 0);
        header.setExpType("TAG");
        header.setExp(request.has("expression") ? request.get("expression").getAsString() : "*");
        header.setOrder(request.has("order"));
        if (request.has("attempt")) {
            header.setAttemptId(request.get("attempt").getAsString());
        }
        CompletableFuture<PopResult> got = new CompletableFuture<>();
        client.popMessageAsync(NAME, broker, header, PATIENCE + header.getPollTime(), new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                got.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                got.completeExceptionally(error);
            }
        });
        PopResult result = got.get(2 * PATIENCE, TimeUnit.MILLISECONDS);
        List<Map<String, Object>> messages = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("keys", message.getKeys());
                row.put("topic", message.getTopic());
                row.put("queueId", message.getQueueId());
                row.put("queueOffset", message.getQueueOffset());
                row.put("reconsumeTimes", message.getReconsumeTimes());
                row.put("handle", message.getProperty(MessageConst.PROPERTY_POP_CK));
                row.put("firstPop", message.getProperty(MessageConst.PROPERTY_FIRST_POP_TIME));
                row.put("body", new String(message.getBody(), "UTF-8"));
                messages.add(row);
            }
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("status", result.getPopStatus().name());
        told.put("rest", result.getRestNum());
        told.put("messages", messages);
        return told;
    }

    /** What became of an ack or a change. */
    private static final class Told implements AckCallback {
        private final CompletableFuture<Map<String, Object>> told = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult result) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("status", result.getStatus().name());
            row.put("handle", result.getExtraInfo());
            told.complete(row);
        }

        @Override
        public void onException(Throwable error) {
            told.complete(Map.of("failed", String.valueOf(error.getMessage())));
        }

        Map<String, Object> get() throws Exception {
            return told.get(2 * PATIENCE, TimeUnit.MILLISECONDS);
        }
    }

    private Pops() {
    }
}
