package judge;

import com.google.gson.JsonObject;
import java.util.Properties;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What is particular to the broker and the clients of 5.x. */
final class Release {
    static void defaults(MessageStoreConfig config, BrokerConfig broker) {
        config.setTimerWheelEnable(false); // timer messages of any delay; those with a level go the way of 4.x
        broker.setTransactionOpBatchInterval(50); // ms, for what ends half messages to be seen in the store soon
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static BrokerController controller(BrokerConfig broker, NettyServerConfig server, NettyClientConfig client,
            MessageStoreConfig store, Properties properties) {
        AuthConfig access = new AuthConfig();
        access.setConfigName(broker.getBrokerName());
        access.setClusterName(broker.getBrokerClusterName());
        access.setAuthConfigPath(store.getStorePathRootDir() + "/config");
        MixAll.properties2Object(properties, access);
        BrokerController made = new BrokerController(broker, server, client, store, access);
        made.getConfiguration().registerConfig(properties); // where the plug-ins of the store look for theirs
        return made;
    }

    /** In controller mode a broker is isolated until the controller has said what it is. */
    static boolean hasRole(BrokerController broker) {
        return !broker.getBrokerConfig().isEnableControllerMode() || !broker.isIsolated();
    }

    /** Starts a controller, which ends with this process. */
    static String controlling(String store, int fileSize, int port) {
        String address = "127.0.0.1:" + port;
        ControllerConfig config = new ControllerConfig();
        config.setControllerStorePath(store);
        config.setMappedFileSize(fileSize);
        config.setControllerDLegerGroup("controllers");
        config.setControllerDLegerSelfId("n0");
        config.setControllerDLegerPeers("n0-" + address);
        ControllerManager made = new ControllerManager(config, new NettyServerConfig(), new NettyClientConfig());
        if (!made.initialize()) {
            throw new IllegalStateException("the controller does not take this store");
        }
        made.start();
        return address;
    }

    static Object popping(DefaultMQProducer producer, String broker, JsonObject request) throws Exception {
        return Pops.answer(producer, broker, request);
    }

    static void pops(DefaultMQPushConsumer consumer, long invisible) {
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(invisible);
    }

    static String handle(SendResult result) {
        return result.getRecallHandle();
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) throws Exception {
        return producer.recallMessage(topic, handle);
    }

    static Object choose(JsonObject request) throws Exception {
        return Faults.choose(request);
    }

    private Release() {
    }
}
