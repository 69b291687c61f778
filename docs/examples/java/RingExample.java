import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Map;
import java.util.Queue;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A consumer of a ring queue with kafka-clients: attach, receive, ack, release, and a session.
 *
 * <pre>java -cp 'libs/*' RingExample.java BROKERS QUEUE TOPIC_TO_SEND_TO</pre>
 *
 * It acks the first message, releases the second, and when that comes back, acks it and sends another
 * one in a single transaction. docs/protocol.md explains the commands.
 */
public class RingExample implements AutoCloseable {
    static final String CONTROL = "ringfaust.control", DISPATCHED = "ringfaust.dispatched", REPLIES = "ringfaust.replies";

    record Delivery(String id, long number, boolean again, byte[] value) {}

    private final String queue, name;
    private final KafkaConsumer<byte[], byte[]> in;
    private final KafkaProducer<String, String> out, session;
    private final Queue<Delivery> waiting = new ArrayDeque<>();
    private int asked;

    RingExample(String brokers, String queue, String name) {
        this.queue = queue;
        this.name = name;
        var bytes = new ByteArrayDeserializer();
        var text = new StringSerializer();
        in = new KafkaConsumer<>(Map.of("bootstrap.servers", brokers, "isolation.level", "read_committed"), bytes, bytes);
        out = new KafkaProducer<>(Map.of("bootstrap.servers", brokers, "acks", "all"), text, text);
        session = new KafkaProducer<>(Map.of("bootstrap.servers", brokers, "transactional.id", name), text, text);
        session.initTransactions();
        var partitions = Stream.of(DISPATCHED, REPLIES).flatMap(topic -> in.partitionsFor(topic).stream())
            .map(each -> new TopicPartition(each.topic(), each.partition())).toList();
        in.assign(partitions);
        in.seekToEnd(partitions);
        partitions.forEach(in::position);  // now, not at the first poll: no answer can be missed
    }

    private ProducerRecord<String, String> command(String type, String more) {
        var json = "{\"type\":\"" + type + "\",\"queue\":\"" + queue + "\",\"consumer\":\"" + name + "\"" + more + "}";
        return new ProducerRecord<>(CONTROL, queue, json);  // Java finds the queue's partition from the key
    }

    /** Writes a command and waits for its answer. */
    void ask(String type, String more) throws Exception {
        var key = name + "/" + ++asked;
        out.send(command(type, more + ",\"reply\":\"" + key + "\"")).get();
        while (true) {
            for (var record : poll()) {
                if (record.topic().equals(REPLIES) && record.key() != null && key.equals(text(record.key()))) {
                    var answer = text(record.value());
                    if (!answer.contains("\"ok\":true")) {
                        throw new IllegalStateException(type + " was refused: " + answer);
                    }
                    return;
                }
            }
        }
    }

    /** Keeps deliveries to us for later, and returns everything. */
    private Iterable<ConsumerRecord<byte[], byte[]>> poll() {
        var records = in.poll(Duration.ofSeconds(1));
        for (var record : records.records(DISPATCHED)) {
            if (header(record, "queue").equals(queue) && header(record, "consumer").equals(name)) {
                waiting.add(new Delivery(header(record, "id"), Long.parseLong(header(record, "delivery")),
                    header(record, "redelivered").equals("1"), record.value()));
            }
        }
        return records;
    }

    /** Returns the next message. */
    Delivery receive() {
        while (waiting.isEmpty()) {
            poll();
        }
        return waiting.remove();
    }

    static String of(Delivery delivery) {
        return ",\"message\":\"" + delivery.id() + "\",\"delivery\":" + delivery.number();
    }

    /** Acks a message and sends another one: both or neither. */
    void ackAndSend(Delivery done, String topic, String value) {
        session.beginTransaction();
        session.send(command("ack", of(done)));
        session.send(new ProducerRecord<>(topic, value));
        session.commitTransaction();
    }

    static String header(ConsumerRecord<byte[], byte[]> record, String name) {
        var header = record.headers().lastHeader("ringfaust-" + name);
        return header == null ? "" : text(header.value());
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    @Override
    public void close() {
        in.close();
        out.close();
        session.close();
    }

    public static void main(String[] args) throws Exception {
        var name = "java-" + ProcessHandle.current().pid();
        try (var ring = new RingExample(args[0], args[1], name)) {
            ring.ask("attach", ",\"credit\":1,\"session\":\"" + name + "\"");
            System.out.println("attached");

            var first = ring.receive();
            System.out.println("received " + first.id() + ": " + text(first.value()));
            ring.ask("ack", of(first));
            System.out.println("acked " + first.id());

            var second = ring.receive();
            ring.ask("release", of(second));
            System.out.println("released " + second.id());

            var again = ring.receive();
            System.out.println("received " + again.id() + " again: " + again.again());
            ring.ackAndSend(again, args[2], "done");
            System.out.println("committed");
            ring.ask("detach", "");
            System.out.println("detached");
        }
    }
}
