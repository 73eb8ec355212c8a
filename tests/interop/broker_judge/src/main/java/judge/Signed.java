package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What clients do as an account that access control knows, or does not; one action a request, by "do":
 * <pre>
 * "raw": "requests": [{"code": n, "fields": {name: value}, "base64": body}]
 * "send": "topic": t, "keys": k   and "batch": n for so many at once
 * "consume": "group": g, "topic": t, "count": n, "millis": n   what a push consumer gets until it has so many, or so long
 * "view": "topic": t, "msgId": offset id, and "query": "topic": t, "key": k
 * </pre>
 */
final class Signed {
    private static final int PATIENCE = 20_000;
    private static int instances;

    static Object run(String nameServer, String broker, JsonObject request) throws Exception {
        RPCHook hook = request.has("accessKey") ? new AclClientRPCHook(new SessionCredentials(
            request.get("accessKey").getAsString(), request.get("secretKey").getAsString())) : null;
        String instance = "signed-" + ++instances; // clients of one name share a hook
        if (text(request, "do").equals("consume")) {
            return consume(nameServer, hook, instance, request);
        }
        DefaultMQProducer producer = new DefaultMQProducer("signing", hook);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(instance);
        producer.setSendMsgTimeout(PATIENCE);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            switch (text(request, "do")) {
                case "raw":
                    List<Object> answers = new ArrayList<>();
                    for (JsonElement one : request.getAsJsonArray("requests")) {
                        answers.add(raw(producer, broker, one.getAsJsonObject()));
                    }
                    return answers;
                case "send":
                    return send(producer, request);
                case "view":
                    return Map.of("found", producer.viewMessage(text(request, "topic"), text(request, "msgId")).getKeys());
                default:
                    return Map.of("found", producer.queryMessage(
                        text(request, "topic"), text(request, "key"), 32, 0, Long.MAX_VALUE).getMessageList().size());
            }
        } catch (MQBrokerException error) {
            return Map.of("code", error.getResponseCode(), "remark", error.getErrorMessage());
        } catch (Exception error) {
            return Map.of("failed", String.valueOf(error.getClass().getSimpleName()));
        } finally {
            producer.shutdown();
        }
    }

    private static String text(JsonObject request, String name) {
        return request.get(name).getAsString();
    }

    private static Object raw(DefaultMQProducer producer, String broker, JsonObject request) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(request.get("code").getAsInt(), null);
        HashMap<String, String> fields = new HashMap<>();
        request.getAsJsonObject("fields").entrySet().forEach(e -> fields.put(e.getKey(), e.getValue().getAsString()));
        command.setExtFields(fields);
        command.setBody(Base64.getDecoder().decode(text(request, "base64")));
        RemotingCommand answer = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl()
            .getRemotingClient().invokeSync(broker, command, PATIENCE);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("code", answer.getCode());
        row.put("remark", answer.getRemark());
        return row;
    }

    private static Object send(DefaultMQProducer producer, JsonObject request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < (request.has("batch") ? request.get("batch").getAsInt() : 1); number++) {
            messages.add(new Message(text(request, "topic"), "", text(request, "keys"), "x".getBytes(StandardCharsets.UTF_8)));
        }
        MessageQueue queue = new MessageQueue(text(request, "topic"), "lab-a", 0);
        var result = request.has("batch") ? producer.send(messages, queue) : producer.send(messages.get(0), queue);
        return Map.of("status", result.getSendStatus().name(), "offsetMsgId", result.getOffsetMsgId());
    }

    private static Object consume(String nameServer, RPCHook hook, String instance, JsonObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            text(request, "group"), hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(text(request, "topic"), "*");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(message.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int count = request.get("count").getAsInt();
        long left = request.get("millis").getAsLong();
        while (seen.size() < count && left > 0) { // pauses are counted, not the clock
            Thread.sleep(50);
            left -= 50;
        }
        consumer.shutdown();
        return new ArrayList<>(seen);
    }

    private Signed() {
    }
}
