/*
 * The client judge lets classes of the real Apache RocketMQ client answer, so that rmqtool's own rules can be compared
 * with them.
 *
 * One JSON request per line on stdin, one JSON answer per line on stdout. An exception is an answer too:
 * {"error": class name, "message": text}.
 */
package judge;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.Validators;
import org.apache.rocketmq.client.common.ThreadLocalIndex;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.compression.ZlibCompressor;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

public final class Client {
    static final class Queue {
        String topic;
        String broker;
        int id;

        MessageQueue real() {
            return new MessageQueue(topic, broker, id);
        }

        static Queue of(MessageQueue queue) {
            Queue made = new Queue();
            made.topic = queue.getTopic();
            made.broker = queue.getBrokerName();
            made.id = queue.getQueueId();
            return made;
        }
    }

    static final class Item {
        String topic;
        String body;
        int flag;
        Map<String, String> properties;

        Message real() throws Exception {
            Message message = new Message();
            message.setTopic(topic);
            message.setBody(body == null ? null : Base64.getDecoder().decode(body));
            message.setFlag(flag);
            if (properties != null) {
                for (Map.Entry<String, String> one : properties.entrySet()) {
                    put(message, one.getKey(), one.getValue());
                }
            }
            return message;
        }

        private static void put(Message message, String name, String value) throws Exception {
            java.lang.reflect.Method method = Message.class.getDeclaredMethod("putProperty", String.class, String.class);
            method.setAccessible(true);
            method.invoke(message, name, value);
        }
    }

    static final class Fault {
        String broker;
        long latency;
        long duration;
    }

    static final class Request {
        String command;
        String strategy;
        String inner;
        String group;
        String cid;
        String text;
        String last;
        List<String> cids;
        List<String> rooms;
        Map<String, String> roomOf;
        List<Queue> queues;
        List<Queue> configured;
        List<Item> items;
        List<Long> offsets;
        List<Fault> faults;
        List<String> keys;
        int index;
        int count;
        int level;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Gson gson = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                run(gson.fromJson(line, Request.class), answer);
            } catch (Throwable e) {
                answer.put("error", e.getClass().getSimpleName());
                answer.put("message", e.getMessage());
                if (e instanceof MQClientException) {
                    answer.put("code", ((MQClientException) e).getResponseCode());
                    answer.put("message", ((MQClientException) e).getErrorMessage());
                }
            }
            answers.print(gson.toJson(answer));
            answers.print('\n');
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(Request request, Map<String, Object> answer) throws Exception {
        switch (request.command) {
            case "allocate":
                answer.put("queues", queues(strategy(request, request.strategy)
                    .allocate("group", request.cid, real(request.queues), request.cids)));
                break;
            case "sort": {
                List<MessageQueue> sorted = real(request.queues);
                Collections.sort(sorted);
                Collections.sort(request.cids);
                answer.put("queues", queues(sorted));
                answer.put("cids", request.cids);
                break;
            }
            case "checkTopic":
                Validators.checkTopic(request.text);
                Validators.isNotAllowedSendTopic(request.text);
                break;
            case "checkGroup":
                Validators.checkGroup(request.text);
                break;
            case "checkMessage":
                Validators.checkMessage(request.items.get(0).real(), new DefaultMQProducer("judge"));
                break;
            case "batch": {
                List<Message> messages = new ArrayList<>();
                for (Item item : request.items) {
                    messages.add(item.real());
                }
                MessageBatch batch = MessageBatch.generateFromList(messages);
                answer.put("body", Base64.getEncoder().encodeToString(batch.encode()));
                answer.put("properties", MessageDecoder.messageProperties2String(batch.getProperties()));
                break;
            }
            case "createId": {
                List<String> ids = new ArrayList<>();
                for (int i = 0; i < request.count; i++) {
                    ids.add(MessageClientIDSetter.createUniqID());
                }
                answer.put("ids", ids);
                answer.put("now", System.currentTimeMillis());
                answer.put("pid", ProcessHandle.current().pid());
                break;
            }
            case "parseId":
                answer.put("address", MessageClientIDSetter.getIPStrFromID(request.text));
                answer.put("pid", MessageClientIDSetter.getPidFromID(request.text));
                answer.put("time", MessageClientIDSetter.getNearlyTimeFromID(request.text).getTime());
                break;
            case "select":
                select(request, answer);
                break;
            case "selectByHash":
                answer.put("queues", queues(Collections.singletonList(
                    new SelectMessageQueueByHash().select(real(request.queues), null, request.text))));
                break;
            case "duration": {
                java.lang.reflect.Method method =
                    MQFaultStrategy.class.getDeclaredMethod("computeNotAvailableDuration", long.class);
                method.setAccessible(true);
                List<Object> durations = new ArrayList<>();
                for (Long latency : request.offsets) {
                    durations.add(method.invoke(new MQFaultStrategy(), latency));
                }
                answer.put("durations", durations);
                break;
            }
            case "compress":
                answer.put("body", Base64.getEncoder().encodeToString(
                    new ZlibCompressor().compress(Base64.getDecoder().decode(request.text), request.level)));
                break;
            case "broadcastOffsets": {
                OffsetSerializeWrapper wrapper = new OffsetSerializeWrapper();
                for (int i = 0; i < request.queues.size(); i++) {
                    wrapper.getOffsetTable().put(request.queues.get(i).real(), new AtomicLong(request.offsets.get(i)));
                }
                answer.put("text", wrapper.toJson(true));
                break;
            }
            case "readBroadcastOffsets": {
                OffsetSerializeWrapper wrapper =
                    OffsetSerializeWrapper.fromJson(request.text, OffsetSerializeWrapper.class);
                List<Object> rows = new ArrayList<>();
                for (Map.Entry<MessageQueue, AtomicLong> entry : wrapper.getOffsetTable().entrySet()) {
                    Map<String, Object> row = new LinkedHashMap<>();
                    row.put("queue", Queue.of(entry.getKey()));
                    row.put("offset", entry.getValue().get());
                    rows.add(row);
                }
                answer.put("rows", rows);
                break;
            }
            case "consumerOffsets": // as ConsumerOffsetManager has and writes them: topic@group to queue 0..count-1
                answer.put("text", RemotingSerializable.toJson(consumerOffsets(request), true));
                break;
            default:
                throw new IllegalArgumentException("no such command: " + request.command);
        }
    }

    private static Map<String, Object> consumerOffsets(Request request) {
        ConcurrentMap<String, ConcurrentMap<Integer, Long>> table = new ConcurrentHashMap<>(512);
        for (String key : request.keys) {
            ConcurrentMap<Integer, Long> queues = new ConcurrentHashMap<>(32);
            for (int i = 0; i < request.count; i++) {
                queues.put(i, (long) i);
            }
            table.put(key, queues);
        }
        Map<String, Object> file = new LinkedHashMap<>();
        file.put("offsetTable", table);
        return file;
    }

    private static AllocateMessageQueueStrategy strategy(Request request, String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return request.count > 0 ? new AllocateMessageQueueConsistentHash(request.count)
                    : new AllocateMessageQueueConsistentHash();
            case "CONFIG": {
                AllocateMessageQueueByConfig made = new AllocateMessageQueueByConfig();
                made.setMessageQueueList(real(request.configured));
                return made;
            }
            case "MACHINE_ROOM": {
                AllocateMessageQueueByMachineRoom made = new AllocateMessageQueueByMachineRoom();
                made.setConsumeridcs(new HashSet<>(request.rooms));
                return made;
            }
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(request, request.inner),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue messageQueue) {
                            return request.roomOf.get(messageQueue.getBrokerName());
                        }

                        @Override
                        public String consumerDeployIn(String clientID) {
                            return request.roomOf.get(clientID);
                        }
                    });
            default:
                throw new IllegalArgumentException("no such strategy: " + name);
        }
    }

    /** A sequence of choices: every answer's broker is the next one's last, where a last is asked for. */
    private static void select(Request request, Map<String, Object> answer) throws Exception {
        TopicPublishInfo info = new TopicPublishInfo();
        info.setMessageQueueList(real(request.queues));
        setIndex(info.getSendWhichQueue(), request.index);
        info.setTopicRouteData(new org.apache.rocketmq.common.protocol.route.TopicRouteData());
        info.getTopicRouteData().setQueueDatas(new ArrayList<>());
        Map<String, Integer> writable = new LinkedHashMap<>();
        for (Queue queue : request.queues) {
            writable.merge(queue.broker, 1, Integer::sum);
        }
        writable.forEach((broker, nums) -> {
            org.apache.rocketmq.common.protocol.route.QueueData data =
                new org.apache.rocketmq.common.protocol.route.QueueData();
            data.setBrokerName(broker);
            data.setWriteQueueNums(nums);
            data.setReadQueueNums(nums);
            data.setPerm(6);
            info.getTopicRouteData().getQueueDatas().add(data);
        });
        MQFaultStrategy strategy = new MQFaultStrategy();
        if (request.faults != null) {
            strategy.setSendLatencyFaultEnable(true);
            Object tolerance = field(strategy, "latencyFaultTolerance");
            setIndex((ThreadLocalIndex) field(tolerance, "whichItemWorst"), request.index);
            for (Fault fault : request.faults) {
                @SuppressWarnings("unchecked")
                LatencyFaultTolerance<String> table = (LatencyFaultTolerance<String>) tolerance;
                table.updateFaultItem(fault.broker, fault.latency, fault.duration);
            }
        }
        List<MessageQueue> chosen = new ArrayList<>();
        String last = request.last;
        for (int i = 0; i < request.count; i++) {
            MessageQueue queue = strategy.selectOneMessageQueue(info, last);
            chosen.add(queue);
            last = request.last == null ? null : queue.getBrokerName();
        }
        answer.put("queues", queues(chosen));
    }

    private static void setIndex(ThreadLocalIndex index, int value) throws Exception {
        @SuppressWarnings("unchecked")
        ThreadLocal<Integer> local = (ThreadLocal<Integer>) field(index, "threadLocalIndex");
        local.set(value);
    }

    private static Object field(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private static List<MessageQueue> real(List<Queue> queues) {
        List<MessageQueue> made = new ArrayList<>();
        for (Queue queue : queues) {
            made.add(queue.real());
        }
        return made;
    }

    private static List<Queue> queues(List<MessageQueue> queues) {
        List<Queue> made = new ArrayList<>();
        for (MessageQueue queue : queues) {
            made.add(Queue.of(queue));
        }
        return made;
    }
}
