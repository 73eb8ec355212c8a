package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * How consumers share queues, by "strategy": average, circle, config with "queues": ids, room, near and hash. The room of
 * a broker stands before an @ of its name, that of a consumer before a - of its instance.
 */
final class Strategies {
    static AllocateMessageQueueStrategy of(JsonObject request, String broker) {
        switch (request.get("strategy").getAsString()) {
            case "average":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "hash":
                return new AllocateMessageQueueConsistentHash();
            case "config":
                List<MessageQueue> queues = new ArrayList<>();
                for (JsonElement id : request.getAsJsonArray("queues")) {
                    queues.add(new MessageQueue(request.get("topic").getAsString(), broker, id.getAsInt()));
                }
                AllocateMessageQueueByConfig configured = new AllocateMessageQueueByConfig();
                configured.setMessageQueueList(queues);
                return configured;
            case "room":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(Set.of(broker.split("@")[0]));
                return rooms;
            case "near":
                return new AllocateMachineRoomNearby(
                    new AllocateMessageQueueAveragely(), new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@")[0];
                        }

                        @Override
                        public String consumerDeployIn(String clientId) {
                            return clientId.split("@")[1].split("-")[0];
                        }
                    });
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private Strategies() {
    }
}
