// A consumer of a ring queue with franz-go: attach, receive, ack, release, and a session.
//
//	go run . BROKERS QUEUE TOPIC_TO_SEND_TO
//
// It acks the first message, releases the second, and when that comes back, acks it and sends another
// one in a single transaction. docs/protocol.md explains the commands.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	control    = "ringfaust.control"
	dispatched = "ringfaust.dispatched"
	replies    = "ringfaust.replies"
)

type fields = map[string]any

// Delivery is one message that the worker has handed to us.
type Delivery struct {
	ID        string
	Number    int64
	Again     bool
	Value     []byte
	Partition int32
}

// Ring is a consumer of one queue.
type Ring struct {
	client  *kgo.Client // reads, and writes the commands outside transactions
	session *kgo.Client // writes transactions
	queue   string
	name    string
	asked   int
	waiting []Delivery
}

func open(ctx context.Context, brokers, queue, name string) (*Ring, error) {
	admin, err := kgo.NewClient(kgo.SeedBrokers(brokers))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	// Where the topics end now: an answer to what we write later cannot be missed.
	ends, err := kadm.NewClient(admin).ListEndOffsets(ctx, dispatched, replies)
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		if from[end.Topic] == nil {
			from[end.Topic] = map[int32]kgo.Offset{}
		}
		from[end.Topic][end.Partition] = kgo.NewOffset().At(end.Offset)
	})
	// By default franz-go chooses the partition of a key as Java does, which is that of the queue.
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return nil, err
	}
	session, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.TransactionalID(name),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	return &Ring{client: client, session: session, queue: queue, name: name}, err
}

func (r *Ring) command(kind string, more fields) *kgo.Record {
	command := fields{"type": kind, "queue": r.queue, "consumer": r.name}
	for name, value := range more {
		command[name] = value
	}
	value, _ := json.Marshal(command)
	return &kgo.Record{Topic: control, Key: []byte(r.queue), Value: value}
}

// Ask writes a command and waits for its answer.
func (r *Ring) ask(ctx context.Context, kind string, more fields) error {
	r.asked++
	key := r.name + "/" + strconv.Itoa(r.asked)
	given := fields{"reply": key}
	for name, value := range more {
		given[name] = value
	}
	if err := r.client.ProduceSync(ctx, r.command(kind, given)).FirstErr(); err != nil {
		return err
	}
	for {
		records, err := r.poll(ctx)
		if err != nil {
			return err
		}
		for _, record := range records {
			if record.Topic == replies && string(record.Key) == key {
				var answer struct {
					OK   bool   `json:"ok"`
					Text string `json:"text"`
				}
				if err := json.Unmarshal(record.Value, &answer); err != nil {
					return err
				}
				if !answer.OK {
					return fmt.Errorf("%s was refused: %s", kind, answer.Text)
				}
				return nil
			}
		}
	}
}

// Poll keeps deliveries to us for later, and returns everything.
func (r *Ring) poll(ctx context.Context) ([]*kgo.Record, error) {
	fetches := r.client.PollFetches(ctx)
	if errs := fetches.Errors(); len(errs) > 0 {
		return nil, errs[0].Err
	}
	records := fetches.Records()
	for _, record := range records {
		if record.Topic == dispatched && header(record, "queue") == r.queue && header(record, "consumer") == r.name {
			number, _ := strconv.ParseInt(header(record, "delivery"), 10, 64)
			r.waiting = append(r.waiting, Delivery{header(record, "id"), number,
				header(record, "redelivered") == "1", record.Value, record.Partition})
		}
	}
	return records, nil
}

// Receive returns the next message.
func (r *Ring) receive(ctx context.Context) (Delivery, error) {
	for len(r.waiting) == 0 {
		if _, err := r.poll(ctx); err != nil {
			return Delivery{}, err
		}
	}
	next := r.waiting[0]
	r.waiting = r.waiting[1:]
	return next, nil
}

// Session acks a message and sends another one: both or neither.
func (r *Ring) ackAndSend(ctx context.Context, done Delivery, topic string, value []byte) error {
	if err := r.session.BeginTransaction(); err != nil {
		return err
	}
	ack := r.command("ack", fields{"message": done.ID, "delivery": done.Number})
	sent := r.session.ProduceSync(ctx, ack, &kgo.Record{Topic: topic, Value: value})
	if err := sent.FirstErr(); err != nil {
		_ = r.session.EndTransaction(ctx, kgo.TryAbort)
		return err
	}
	return r.session.EndTransaction(ctx, kgo.TryCommit)
}

func header(record *kgo.Record, name string) string {
	for _, each := range record.Headers {
		if each.Key == "ringfaust-"+name {
			return string(each.Value)
		}
	}
	return ""
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("go-%d", os.Getpid())
	ring, err := open(ctx, os.Args[1], os.Args[2], name)
	check(err)
	check(ring.ask(ctx, "attach", fields{"credit": 1, "session": name}))
	fmt.Println("attached")

	first, err := ring.receive(ctx)
	check(err)
	fmt.Printf("received %s: %s\n", first.ID, first.Value)
	check(ring.ask(ctx, "ack", fields{"message": first.ID, "delivery": first.Number}))
	fmt.Println("acked", first.ID)

	second, err := ring.receive(ctx)
	check(err)
	check(ring.ask(ctx, "release", fields{"message": second.ID, "delivery": second.Number}))
	fmt.Println("released", second.ID)

	again, err := ring.receive(ctx)
	check(err)
	fmt.Printf("received %s again: %t\n", again.ID, again.Again)
	check(ring.ackAndSend(ctx, again, os.Args[3], []byte("done")))
	fmt.Println("committed")
	check(ring.ask(ctx, "detach", nil))
	fmt.Println("detached")
}
