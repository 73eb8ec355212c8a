package judge;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official Java client for gRPC: sends messages of every kind, also to lite topics, or drains a topic; prints JSON. */
public class Grpc {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final String[] TOPICS = {"Plain", "Fifo", "Late", "Tx"};

    public static void main(String[] args) throws Exception {
        ClientConfiguration client = ClientConfiguration.newBuilder()
            .setEndpoints(args[1]).setRequestTimeout(Duration.ofSeconds(10)).enableSsl(false).build();
        int code = 1;
        try {
            if (args[0].equals("send")) {
                send(client, Integer.parseInt(args[2]));
            } else if (args[0].equals("lite")) {
                lite(client, Integer.parseInt(args[2]));
            } else {
                drain(client, args[2], args[3], Integer.parseInt(args[4]));
            }
            code = 0;
        } catch (Exception failure) {
            failure.printStackTrace();
        } finally {
            System.exit(code);  // the client's threads would keep the process
        }
    }

    private static void send(ClientConfiguration client, int count) throws Exception {
        List<String> asked = Collections.synchronizedList(new ArrayList<>());
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(client).setTopics(TOPICS)
            .setTransactionChecker(view -> {
                asked.add(text(view));
                return TransactionResolution.COMMIT;
            }).build();
        for (int number = 0; number < count; number++) {
            producer.send(message("Plain", "" + number).setTag("t").setKeys("k" + number).build());
            String group = "g" + number % 3;
            producer.send(message("Fifo", number % 3 + " " + number).setMessageGroup(group).build());
        }
        long due = System.currentTimeMillis() + 3000;
        producer.send(message("Late", "late").setDeliveryTimestamp(due).build());
        SendReceipt recalled = producer.send(message("Late", "recalled").setDeliveryTimestamp(due).build());
        producer.recallMessage("Late", recalled.getRecallHandle());
        for (String body : new String[] {"committed", "rolled back", "undecided"}) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("Tx", body).build(), transaction);
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled back")) {
                transaction.rollback();
            }
        }

        // by push: the listener gives one message back, and gets it again
        Map<String, Integer> pushed = new ConcurrentHashMap<>();
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(client)
            .setConsumerGroup("push-group")
            .setSubscriptionExpressions(Collections.singletonMap("Plain", FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                boolean first = pushed.merge(text(view), 1, Integer::sum) == 1;
                return first && text(view).equals("0") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();

        List<String[]> got = receive(consumer(client, "grpc-group", TOPICS), 2 * count + 3);
        long end = System.currentTimeMillis() + 180000;
        while (pushed.values().stream().mapToInt(Integer::intValue).sum() < count + 1
            && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
        push.close();
        producer.close();
        Map<String, List<String>> bodies = new HashMap<>();
        List<Long> late = new ArrayList<>();
        for (String[] each : got) {
            bodies.computeIfAbsent(each[0], topic -> new ArrayList<>()).add(each[1]);
            if (each[0].equals("Late")) {
                late.add((Long.parseLong(each[3]) - due) / 1000);
            }
        }
        boolean inOrder = true;
        Map<String, Integer> last = new HashMap<>();
        for (String body : bodies.getOrDefault("Fifo", List.of())) {
            int number = Integer.parseInt(body.substring(2));
            inOrder &= last.getOrDefault(body.substring(0, 1), -1) < number;
            last.put(body.substring(0, 1), number);
        }
        Collections.sort(bodies.getOrDefault("Tx", new ArrayList<>()));
        System.out.println("{\"plain\": " + json(bodies.get("Plain")) + ", \"fifo\": " + inOrder + ", \"fifoCount\": "
            + bodies.getOrDefault("Fifo", List.of()).size() + ", \"late\": " + late + ", \"lateBodies\": "
            + json(bodies.get("Late")) + ", \"tx\": " + json(bodies.get("Tx")) + ", \"asked\": " + json(asked)
            + ", \"pushed\": " + pushed.size() + ", \"pushedAgain\": " + pushed.get("0") + "}");
    }

    /** Sends to three lite topics; a consumer subscribes to two, later to the third, and leaves one in between. */
    private static void lite(ClientConfiguration client, int count) throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(client).setTopics("Parent").build();
        Map<String, List<String>> got = new ConcurrentHashMap<>();
        LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(client)
            .setConsumerGroup("lite-group").bindTopic("Parent").setMessageListener(view -> {
                List<String> bodies = got.computeIfAbsent(view.getLiteTopic().orElse(""),
                    name -> Collections.synchronizedList(new ArrayList<>()));
                bodies.add(text(view));
                return bodies.size() == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;  // the first comes again
            }).build();
        consumer.subscribeLite("one");
        consumer.subscribeLite("two");
        for (int number = 0; number < count; number++) {
            for (String name : new String[] {"one", "two", "three"}) {
                producer.send(message("Parent", name + number).setLiteTopic(name).build());
            }
        }
        await(() -> size(got, "one") + size(got, "two") >= 2 * count + 2);
        int before = size(got, "three");
        consumer.unsubscribeLite("two");
        producer.send(message("Parent", "unread").setLiteTopic("two").build());
        consumer.subscribeLite("three");
        await(() -> size(got, "three") >= count + 1);
        List<String> names = new ArrayList<>(consumer.getLiteTopicSet());
        Collections.sort(names);
        consumer.close();
        producer.close();
        System.out.println("{\"one\": " + json(got.get("one")) + ", \"two\": " + json(got.get("two"))
            + ", \"three\": " + json(got.get("three")) + ", \"before\": " + before + ", \"names\": " + json(names) + "}");
    }

    private static int size(Map<String, List<String>> got, String name) {
        return got.getOrDefault(name, List.of()).size();
    }

    private static void await(BooleanSupplier done) throws InterruptedException {
        long end = System.currentTimeMillis() + 180000;
        while (!done.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
    }

    private static void drain(ClientConfiguration client, String group, String topic, int count) throws Exception {
        List<String[]> got = receive(consumer(client, group, topic), count);
        System.out.println(json(got.stream().map(each -> each[2]).collect(Collectors.toList())));
    }

    private static SimpleConsumer consumer(ClientConfiguration client, String group, String... topics)
        throws Exception {
        Map<String, FilterExpression> subscribed = new HashMap<>();
        for (String topic : topics) {
            subscribed.put(topic, FilterExpression.SUB_ALL);
        }
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(client).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(2)).setSubscriptionExpressions(subscribed).build();
    }

    /** Topic, body, message id and time of what is received and acknowledged, until there is enough, or time is up. */
    private static List<String[]> receive(SimpleConsumer consumer, int wanted) throws Exception {
        List<String[]> got = new ArrayList<>();
        long end = System.currentTimeMillis() + 180000;
        while (got.size() < wanted && System.currentTimeMillis() < end) {
            for (MessageView view : consumer.receive(32, Duration.ofSeconds(20))) {
                String now = "" + System.currentTimeMillis();
                got.add(new String[] {view.getTopic(), text(view), view.getMessageId().toString(), now});
                consumer.ack(view);
            }
        }
        consumer.close();
        return got;
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageView view) {
        ByteBuffer body = view.getBody();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    private static String json(List<String> words) {
        return words == null ? "[]" : words.stream().collect(Collectors.joining("\", \"", "[\"", "\"]")).replace(
            "[\"\"]", "[]");
    }
}
