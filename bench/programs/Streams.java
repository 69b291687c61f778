import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams application that keeps the last record of each key and passes all of them on,
 * exactly once, with a standby. It prints which partitions it serves, as a worker does.
 *
 * <p>Arguments: servers, application, folder for the state, input topic, output topic.
 */
class Streams {
  private static final String STORE = "last";

  public static void main(String[] arguments) throws Exception {
    Properties options = new Properties();
    options.put("bootstrap.servers", arguments[0]);
    options.put("application.id", arguments[1]);
    options.put("state.dir", arguments[2]);
    options.put("num.standby.replicas", 1);
    options.put("processing.guarantee", "exactly_once_v2");
    options.put("default.key.serde", Serdes.ByteArraySerde.class);
    options.put("default.value.serde", Serdes.ByteArraySerde.class);
    // The shortest that brokers allow by default; the default is 45 s.
    options.put("session.timeout.ms", 6_000);
    options.put("heartbeat.interval.ms", 2_000);
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.ByteArray()));
    builder.<byte[], byte[]>stream(arguments[3]).process(Last::new, STORE).to(arguments[4]);
    KafkaStreams streams = new KafkaStreams(builder.build(), options);
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
    String told = "";
    while (true) {
      String tasks =
          "assigned: " + shown(streams, "partition ", true)
              + "\nstandbys: " + shown(streams, "standby ", false);
      if (streams.state() == KafkaStreams.State.RUNNING) {
        tasks += "\nINFO ready: all";
      }
      if (!tasks.equals(told)) {
        System.out.println(tasks);
      }
      told = tasks;
      Thread.sleep(20);
    }
  }

  private static String shown(KafkaStreams streams, String what, boolean active) {
    Stream<TaskMetadata> tasks =
        streams.metadataForLocalThreads().stream()
            .flatMap(each -> (active ? each.activeTasks() : each.standbyTasks()).stream());
    return tasks
        .map(each -> what + each.taskId().partition())
        .sorted()
        .collect(Collectors.joining("; "));
  }

  private static class Last implements Processor<byte[], byte[], byte[], byte[]> {
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], byte[]> store;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
      this.context = context;
      this.store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
      store.put(record.key(), record.value());
      context.forward(record);
    }
  }
}
