// The official Go client for gRPC: sends messages and receives them, or drains a topic; prints JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func config(endpoint, group string) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{},
	}
}

func send(endpoint string, count int) int {
	producer, err := rocketmq.NewProducer(config(endpoint, ""), rocketmq.WithTopics("Plain"))
	check(err)
	check(producer.Start())
	defer producer.GracefulStop()
	for number := 0; number < count; number++ {
		message := &rocketmq.Message{Topic: "Plain", Body: []byte(strconv.Itoa(number))}
		message.SetTag("t")
		message.SetKeys(fmt.Sprintf("k%d", number))
		_, err := producer.Send(context.Background(), message)
		check(err)
	}
	return count
}

// receive returns what identifies each of count messages, acknowledged.
func receive(endpoint, group, topic string, count int, name func(*rocketmq.MessageView) string) []string {
	consumer, err := rocketmq.NewSimpleConsumer(config(endpoint, group),
		rocketmq.WithSimpleAwaitDuration(3*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}))
	check(err)
	check(consumer.Start())
	defer consumer.GracefulStop()
	seen := map[string]bool{}
	for end := time.Now().Add(120 * time.Second); len(seen) < count && time.Now().Before(end); {
		messages, err := consumer.Receive(context.Background(), 32, 20*time.Second)
		if err != nil { // there is none at the moment
			continue
		}
		for _, message := range messages {
			check(consumer.Ack(context.Background(), message))
			seen[name(message)] = true
		}
	}
	names := []string{}
	for each := range seen {
		names = append(names, each)
	}
	return names
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var result any
	if words := os.Args[1:]; words[0] == "drain" {
		count, err := strconv.Atoi(words[4])
		check(err)
		id := func(message *rocketmq.MessageView) string { return message.GetMessageId() }
		result = receive(words[1], words[2], words[3], count, id)
	} else {
		count, err := strconv.Atoi(words[1])
		check(err)
		body := func(message *rocketmq.MessageView) string { return string(message.GetBody()) }
		sent := send(words[0], count)
		result = map[string]int{"sent": sent, "received": len(receive(words[0], "go-group", "Plain", count, body))}
	}
	text, err := json.Marshal(result)
	check(err)
	fmt.Println(string(text))
}
