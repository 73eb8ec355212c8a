package judge;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A whole broker with its name server and unmodified clients in one JVM.
 *
 * One request a line on stdin, one answer a line on stdout, both JSON:
 * <pre>
 * {"command": "boot", "store": path, "config": {name: value}}
 * {"command": "topic", "topic": t}
 * {"command": "send", "topic": t, "keys": k, "body": b, "level": n}
 * {"command": "sendHalf", "group": g, "topic": t, "keys": k, "answer": how it is ended at once, "checked": ... on check}
 * {"command": "consume", "group": g, "topic": t, "failures": times that each key fails, "most": max reconsume times,
 *  "level": delay level of a failure}
 * {"command": "decide", "group": g, "answer": commit | rollback | unknown}
 * {"command": "seen"}   what the consumers have got since the boot
 * {"command": "stop"}   a clean shutdown
 * </pre>
 */
public final class Broker {
    private static final Gson GSON = new Gson();
    private final List<Map<String, Object>> seen = new ArrayList<>();
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final Map<String, TransactionMQProducer> producers = new LinkedHashMap<>();
    private NamesrvController names;
    private BrokerController broker;
    private DefaultMQProducer producer;
    private String address;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        // as BrokerStartup does; without it the name server takes the broker for one of version 3
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Broker judge = new Broker();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object answer;
            try {
                answer = judge.answer(GSON.fromJson(line, JsonObject.class));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Map.of("error", String.valueOf(error));
            }
            out.println(GSON.toJson(answer));
        }
        System.exit(0);
    }

    private Object answer(JsonObject request) throws Exception {
        switch (request.get("command").getAsString()) {
            case "boot":
                return boot(request);
            case "topic":
                broker.getTopicConfigManager().createTopicInSendMessageMethod(
                    request.get("topic").getAsString(), TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, "127.0.0.1", 4, 0);
                return Map.of();
            case "send":
                return send(request);
            case "sendHalf":
                return sendHalf(request);
            case "consume":
                return consume(request);
            case "decide":
                producer(request.get("group").getAsString(), state(request, "answer"), state(request, "answer"));
                return Map.of();
            case "seen":
                synchronized (seen) {
                    return new ArrayList<>(seen);
                }
            case "stop":
                return stop();
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private static int freePort() throws Exception {
        while (true) {
            try (ServerSocket first = new ServerSocket(0); ServerSocket below = new ServerSocket(first.getLocalPort() - 2);
                    ServerSocket above = new ServerSocket(first.getLocalPort() + 1)) {
                return first.getLocalPort(); // the broker also listens two below, for its own clients, and one above
            } catch (java.net.BindException taken) {
                continue;
            }
        }
    }

    private Object boot(JsonObject request) throws Exception {
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(freePort());
        NamesrvConfig namesConfig = new NamesrvConfig();
        namesConfig.setKvConfigPath(Path.of(System.getProperty("user.home"), "kv.json").toString());
        names = new NamesrvController(namesConfig, listen);
        names.initialize();
        names.start();
        address = "127.0.0.1:" + listen.getListenPort();

        String store = request.get("store").getAsString();
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        storeConfig.setStorePathRootDir(store);
        storeConfig.setStorePathCommitLog(store + "/commitlog");
        BrokerConfig brokerConfig = new BrokerConfig();
        brokerConfig.setBrokerClusterName("LabCluster");
        brokerConfig.setBrokerName("lab-a");
        brokerConfig.setBrokerIP1("127.0.0.1");
        brokerConfig.setNamesrvAddr(address);
        Properties properties = new Properties();
        request.getAsJsonObject("config").entrySet().forEach(e -> properties.setProperty(e.getKey(), e.getValue().getAsString()));
        MixAll.properties2Object(properties, storeConfig);
        MixAll.properties2Object(properties, brokerConfig);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(freePort());
        storeConfig.setHaListenPort(server.getListenPort() + 1);
        broker = new BrokerController(brokerConfig, server, new NettyClientConfig(), storeConfig);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not take this store");
        }
        broker.start();
        TopicRouteData route = null;
        for (int n = 0; n < 1000 && (route == null || route.getBrokerDatas().isEmpty()); n++) { // it registers by itself
            Thread.sleep(20);
            route = names.getRouteInfoManager().pickupTopicRouteData(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC);
        }
        producer = new DefaultMQProducer("lab-producer");
        producer.setNamesrvAddr(address);
        producer.start();
        return Map.of("port", server.getListenPort());
    }

    private Message message(JsonObject request) {
        Message message = new Message(request.get("topic").getAsString(), "tag", request.get("keys").getAsString(),
            request.get("keys").getAsString().getBytes(StandardCharsets.UTF_8));
        if (request.has("level")) {
            message.setDelayTimeLevel(request.get("level").getAsInt());
        }
        return message;
    }

    private Object send(JsonObject request) throws Exception {
        return Map.of("msgId", producer.send(message(request), 10_000).getMsgId());
    }

    private static LocalTransactionState state(JsonObject request, String name) {
        switch (request.get(name).getAsString()) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private TransactionMQProducer producer(String group, LocalTransactionState first, LocalTransactionState checked)
            throws Exception {
        TransactionMQProducer made = producers.get(group);
        if (made == null) {
            made = new TransactionMQProducer(group);
            made.setNamesrvAddr(address);
            made.setTransactionListener(listener(first, checked));
            made.start();
            // a producer is known to a broker by the heartbeat that follows its first look at a topic of that broker
            made.fetchPublishMessageQueues("Payments");
            made.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
            producers.put(group, made);
        }
        made.setTransactionListener(listener(first, checked));
        return made;
    }

    private TransactionListener listener(LocalTransactionState first, LocalTransactionState checked) {
        return new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return first;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return checked;
            }
        };
    }

    private Object sendHalf(JsonObject request) throws Exception {
        TransactionMQProducer made =
            producer(request.get("group").getAsString(), state(request, "answer"), state(request, "checked"));
        return Map.of("msgId", made.sendMessageInTransaction(message(request), null).getMsgId());
    }

    private Object consume(JsonObject request) throws Exception {
        String group = request.get("group").getAsString();
        int failures = request.get("failures").getAsInt();
        int level = request.get("level").getAsInt();
        Map<String, AtomicInteger> tries = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName(group + request.get("topic").getAsString().hashCode());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(request.get("most").getAsInt());
        consumer.subscribe(request.get("topic").getAsString(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("group", group);
            row.put("topic", message.getTopic());
            row.put("keys", message.getKeys());
            row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
            row.put("reconsumeTimes", message.getReconsumeTimes());
            row.put("time", System.currentTimeMillis());
            synchronized (seen) {
                seen.add(row);
            }
            context.setDelayLevelWhenNextConsume(level);
            boolean fails = tries.computeIfAbsent(message.getKeys(), k -> new AtomicInteger()).incrementAndGet() <= failures;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.add(consumer);
        return Map.of();
    }

    private Object stop() {
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producers.values().forEach(TransactionMQProducer::shutdown);
        producer.shutdown();
        broker.shutdown();
        names.shutdown();
        consumers.clear();
        producers.clear();
        synchronized (seen) {
            seen.clear();
        }
        return Map.of();
    }
}
