// Produces and consumes with the Go client: sends, a batch, tags, one message that is handled twice.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	names := []string{os.Args[1]}
	count, _ := strconv.Atoi(os.Args[2])
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithRetry(2), producer.WithGroupName("producing"))
	if err != nil {
		panic(err)
	}
	if err := p.Start(); err != nil {
		panic(err)
	}
	for i := 0; i < count; i++ {
		m := primitive.NewMessage("Spoken", []byte(fmt.Sprintf("m%d", i)))
		m.WithTag([]string{"a", "b"}[i%2]).WithKeys([]string{fmt.Sprintf("k%d", i)})
		r, err := p.SendSync(context.Background(), m)
		if err != nil {
			panic(err)
		}
		if r.Status != primitive.SendOK {
			panic(r.String())
		}
	}
	var ms []*primitive.Message
	for i := 0; i < 10; i++ {
		ms = append(ms, primitive.NewMessage("Spoken", []byte(fmt.Sprintf("b%d", i))).WithTag("a"))
	}
	if _, err := p.SendSync(context.Background(), ms...); err != nil {
		panic(err)
	}
	fmt.Println("sent", count+10)
	seen := map[string]int{}
	var mu sync.Mutex
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName("consuming"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		panic(err)
	}
	err = c.Subscribe("Spoken", consumer.MessageSelector{Type: consumer.TAG, Expression: "a"}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			seen[string(m.Body)]++
			if string(m.Body) == "m0" && m.ReconsumeTimes == 0 {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		panic(err)
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
	for i := 0; i < 600; i++ {
		mu.Lock()
		n := len(seen)
		again := seen["m0"]
		mu.Unlock()
		if n == count/2+10 && again >= 2 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	mu.Lock()
	fmt.Println("seen", len(seen), "m0", seen["m0"])
	mu.Unlock()
	c.Shutdown()
	p.Shutdown()
}
