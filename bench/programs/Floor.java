import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What no queue on Kafka can do faster: a record that asks, a transaction on three topics that
 * answers, and a consumer that reads committed records. One at a time, by Kafka's own client.
 *
 * <p>Arguments: servers, topic for the questions, three topics for the answers separated by commas,
 * round trips, milliseconds between two, body bytes, file for the result.
 */
class Floor {
  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0];
    String questions = arguments[1];
    String[] answers = arguments[2].split(",");
    int count = Integer.parseInt(arguments[3]);
    int pauseMs = Integer.parseInt(arguments[4]);
    byte[] body = new byte[Integer.parseInt(arguments[5])];
    int warm = count / 10;
    double[] tripsMs = new double[count - warm];
    double[] answersMs = new double[count - warm];
    try (KafkaProducer<byte[], byte[]> asks = producer(servers, Map.of());
        KafkaProducer<byte[], byte[]> worker =
            producer(servers, Map.of("transactional.id", questions));
        KafkaConsumer<byte[], byte[]> hears = consumer(servers, questions);
        KafkaConsumer<byte[], byte[]> reads = consumer(servers, answers[0])) {
      worker.initTransactions();
      for (int number = 0; number < count; number++) {
        Thread.sleep(pauseMs);
        long asked = System.nanoTime();
        asks.send(new ProducerRecord<>(questions, 0, null, body)).get();
        receive(hears);
        long begun = System.nanoTime();
        worker.beginTransaction();
        for (String topic : answers) {
          worker.send(new ProducerRecord<>(topic, 0, null, body));
        }
        worker.commitTransaction();
        receive(reads);
        long received = System.nanoTime();
        if (number >= warm) {
          tripsMs[number - warm] = (received - asked) / 1e6;
          answersMs[number - warm] = (received - begun) / 1e6;
        }
      }
    }
    Arrays.sort(tripsMs);
    Arrays.sort(answersMs);
    String result =
        String.format(
            Locale.ROOT,
            "{\"trip_ms\": %f, \"p50_ms\": %f, \"p99_ms\": %f}",
            tripsMs[tripsMs.length / 2],
            answersMs[answersMs.length / 2],
            answersMs[answersMs.length * 99 / 100]);
    Files.writeString(Path.of(arguments[6]), result);
  }

  private static KafkaProducer<byte[], byte[]> producer(String servers, Map<String, Object> more) {
    Map<String, Object> options = new java.util.HashMap<>(more);
    options.put("bootstrap.servers", servers);
    options.put("linger.ms", 0);
    ByteArraySerializer raw = new ByteArraySerializer();
    return new KafkaProducer<>(options, raw, raw);
  }

  private static KafkaConsumer<byte[], byte[]> consumer(String servers, String topic) {
    Map<String, Object> options =
        Map.of("bootstrap.servers", servers, "isolation.level", "read_committed");
    ByteArrayDeserializer raw = new ByteArrayDeserializer();
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, raw, raw);
    List<TopicPartition> first = List.of(new TopicPartition(topic, 0));
    consumer.assign(first);
    consumer.seekToBeginning(first);
    return consumer;
  }

  private static void receive(KafkaConsumer<byte[], byte[]> consumer) {
    while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) {}
  }
}
