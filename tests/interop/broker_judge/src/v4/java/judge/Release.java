package judge;

import com.google.gson.JsonObject;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What is particular to the broker and the clients of 4.x. */
final class Release {
    static void defaults(MessageStoreConfig config, BrokerConfig broker) {
        // nothing that a test would have to do without
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static BrokerController controller(BrokerConfig broker, NettyServerConfig server, NettyClientConfig client,
            MessageStoreConfig store, Properties properties) {
        BrokerController made = new BrokerController(broker, server, client, store);
        made.getConfiguration().registerConfig(properties); // as BrokerStartup does
        return made;
    }

    static boolean hasRole(BrokerController broker) {
        return true;
    }

    static String controlling(String store, int fileSize, int port) {
        throw new UnsupportedOperationException("4.x has no controller");
    }

    static Object popping(DefaultMQProducer producer, String broker, JsonObject request) {
        throw new UnsupportedOperationException("4.x has no POP");
    }

    static void pops(DefaultMQPushConsumer consumer, long invisible) {
        throw new UnsupportedOperationException("4.x has no POP");
    }

    static String handle(SendResult result) {
        return null;
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) {
        throw new UnsupportedOperationException("4.x calls nothing back");
    }

    static Object choose(JsonObject request) {
        throw new UnsupportedOperationException("of 4.x the client judge says which queues it chooses");
    }

    private Release() {
    }
}
