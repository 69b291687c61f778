// A whole Artemis broker in this process, played through its own server API, one line at a time.
//
// It stands where Artemis' protocol handlers (AMQP, STOMP, core) stand: sessions and consumers are
// those of the broker, and this program is their client. So it decides when a consumer has credit,
// and no network and no client buffer brings in a race. Everything that happens to a message is
// decided by Artemis.
//
// A command is words on one line; the answer is one line of JSON: what happened, in order, and what
// the queue holds and counts when the broker has come to rest.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.CoreAddressConfiguration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.deployers.impl.FileConfigurationParser;
import org.apache.activemq.artemis.core.message.impl.CoreMessage;
import org.apache.activemq.artemis.core.server.ActiveMQServer;
import org.apache.activemq.artemis.core.server.ActiveMQServers;
import org.apache.activemq.artemis.core.server.MessageReference;
import org.apache.activemq.artemis.core.server.Queue;
import org.apache.activemq.artemis.core.server.ServerConsumer;
import org.apache.activemq.artemis.core.server.ServerSession;
import org.apache.activemq.artemis.core.server.impl.AckReason;
import org.apache.activemq.artemis.core.server.plugin.ActiveMQServerMessagePlugin;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.core.transaction.Transaction;
import org.apache.activemq.artemis.spi.core.protocol.RemotingConnection;
import org.apache.activemq.artemis.spi.core.protocol.SessionCallback;
import org.apache.activemq.artemis.utils.FutureLatch;
import org.apache.activemq.artemis.utils.XMLUtil;
import org.apache.activemq.artemis.utils.collections.LinkedListIterator;
import org.w3c.dom.Element;

public class Driver {

   static final long AT_REST_MS = 20_000;

   /** What the client of one consumer knows. */
   static class Client {
      final String name;
      final String session;
      ServerConsumer consumer;
      int credit;
      /** Deliveries that take a credit: not settled, or settled in an open transaction. */
      int inFlight;
      /** What it acked in its session's open transaction. */
      final List<String> acked = new ArrayList<>();

      Client(String name, String session, int credit) {
         this.name = name;
         this.session = session;
         this.credit = credit;
      }
   }

   final ActiveMQServer server;
   final List<String> facts = Collections.synchronizedList(new ArrayList<>());
   final Map<String, ServerSession> sessions = new HashMap<>();
   final Map<String, Client> clients = Collections.synchronizedMap(new LinkedHashMap<>());
   /** By session: who acked in the open transaction, in order. */
   final Map<String, List<Client>> undecided = new HashMap<>();
   /** While false nobody has credit: what a command gives back to several is offered to all. */
   volatile boolean open = true;
   /** How many consumers a session had: as the core client does, each session counts its own. */
   final Map<String, Long> consumers = new HashMap<>();
   /** Did it deliver another message than the first that is ready, or leave it to a consumer? */
   volatile boolean isAtFault;
   /** Matches of address settings, of one history. */
   final List<String> matches = new ArrayList<>();
   String name;
   Queue queue;

   Driver() throws Exception {
      Configuration configuration = new ConfigurationImpl()
         .setPersistenceEnabled(false)
         .setSecurityEnabled(false)
         .setJMXManagementEnabled(false)
         .setMessageExpiryScanPeriod(-1)
         .setAddressQueueScanPeriod(-1)
         .setCriticalAnalyzer(false);
      server = ActiveMQServers.newActiveMQServer(configuration, false);
      server.registerBrokerPlugin(new ActiveMQServerMessagePlugin() {
         @Override
         public void messageAcknowledged(
            Transaction tx, MessageReference ref, AckReason reason, ServerConsumer consumer) {
            if (reason == AckReason.REPLACED) {
               tell("evicted", id(ref));
            } else if (reason == AckReason.KILLED) {
               tell("dead", id(ref));
            } else if (reason == AckReason.EXPIRED) {
               tell("expired", id(ref));
            }
         }
      });
      server.start();
   }

   public static void main(String[] args) throws Exception {
      PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
      System.setOut(System.err);
      Driver driver = new Driver();
      out.println("{\"version\": " + quoted(driver.server.getVersion().getFullVersion()) + "}");
      BufferedReader in =
         new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = in.readLine(); line != null; line = in.readLine()) {
         out.println(driver.answer(line.split(" ")));
      }
      driver.server.stop();
      System.exit(0);
   }

   // --- commands ---------------------------------------------------------------------------------

   String answer(String[] words) throws Exception {
      long began = System.currentTimeMillis();
      String error = "";
      try {
         play(words);
         if (queue == null) {
            return "{}";
         }
         comeToRest();
      } catch (Exception problem) {
         problem.printStackTrace();
         error = problem.toString();
      }
      String seen = String.join(", ",
         "\"error\": " + quoted(error),
         "\"facts\": " + takeFacts(),
         "\"ready\": " + ready(),
         "\"delivering\": " + delivering(),
         "\"scheduled\": " + scheduled(),
         "\"counts\": " + counts(),
         "\"at_fault\": " + (isAtFault || isStuck()));
      // Read last: what came due while we looked came before the end.
      long ended = System.currentTimeMillis();
      return "{\"began\": " + began + ", \"ended\": " + ended + ", " + seen + "}";
   }

   void play(String[] words) throws Exception {
      switch (words[0]) {
         case "queue" -> makeQueue(words);
         case "configured" -> configure(words[1], Path.of(words[2]));
         case "end" -> end();
         case "session" -> sessions.put(words[1], session(words[1], words[2].equals("tx")));
         case "attach" -> attach(words);
         case "credit" -> credit(words[1], Integer.parseInt(words[2]));
         case "send" -> sessions.get("producer").send(message(words, 1), false, "producer");
         case "burst" -> burst(words);
         case "ack" -> ack(words[1], words[2]);
         case "release" -> release(words[1], words[2]);
         case "reject" -> reject(words[1], words[2]);
         case "commit" -> commit(words[1]);
         case "rollback" -> rollback(words[1]);
         case "close" -> close(words[1]);
         case "resize" -> resize(Long.parseLong(words[1]));
         case "pause" -> queue.pause();
         case "resume" -> queue.resume();
         case "deliver_now" -> deliverNow(words[1]);
         case "until" -> Thread.sleep(
            Math.max(0, Long.parseLong(words[1]) - System.currentTimeMillis()));
         default -> throw new IllegalArgumentException(words[0]);
      }
   }

   /** queue NAME RING ATTEMPTS DELAY_MS: a queue of its own address, with settings of its own. */
   void makeQueue(String[] words) throws Exception {
      name = words[1];
      isAtFault = false;
      long delayMs = Long.parseLong(words[4]);
      AddressSettings settings = new AddressSettings()
         .setMaxDeliveryAttempts(Integer.parseInt(words[3]))
         .setRedeliveryDelay(delayMs)
         .setMaxRedeliveryDelay(Long.MAX_VALUE);
      match(name, settings);
      queue = server.createQueue(QueueConfiguration.of(name).setAddress(name)
         .setRoutingType(RoutingType.ANYCAST).setRingSize(Long.parseLong(words[2])));
      sessions.put("producer", session("producer", false));
   }

   /** configured NAME FILE: a queue with the settings of a broker.xml, which may declare it. */
   void configure(String queueName, Path file) throws Exception {
      name = queueName;
      isAtFault = false;
      Configuration parsed = new ConfigurationImpl();
      Element root = XMLUtil.stringToElement(Files.readString(file));
      Element core = (Element) root.getElementsByTagName("core").item(0);
      new FileConfigurationParser().parseMainConfig(core, parsed);
      parsed.getAddressSettings().forEach(this::match);
      QueueConfiguration asked = QueueConfiguration.of(name).setAddress(name)
         .setRoutingType(RoutingType.ANYCAST);  // of a queue that is created when it is used
      for (CoreAddressConfiguration address : parsed.getAddressConfigurations()) {
         asked = address.getQueueConfigs().get(0);
      }
      queue = server.createQueue(asked);
      sessions.put("producer", session("producer", false));
   }

   void match(String match, AddressSettings settings) {
      server.getAddressSettingsRepository().addMatch(match, settings);
      matches.add(match);
   }

   void end() throws Exception {
      for (ServerSession session : sessions.values()) {
         session.close(false);
      }
      sessions.clear();
      clients.clear();
      consumers.clear();
      undecided.clear();
      server.destroyQueue(SimpleString.of(name));
      matches.forEach(server.getAddressSettingsRepository()::removeMatch);
      matches.clear();
      queue = null;
   }

   ServerSession session(String session, boolean transacted) throws Exception {
      ServerSession made = server.createSession(
         name + "/" + session, null, null, Integer.MAX_VALUE, connection(), !transacted, !transacted,
         false, false, null, callback(), false, server.newOperationContext(), Map.of(), null, null,
         false);
      made.start();
      return made;
   }

   /** attach CONSUMER SESSION CREDIT PRIORITY */
   void attach(String[] words) throws Exception {
      Client client = new Client(words[1], words[2], Integer.parseInt(words[3]));
      open = false;
      client.consumer = sessions.get(client.session).createConsumer(
         consumers.merge(client.session, 1L, Long::sum), SimpleString.of(name), null, Integer.parseInt(words[4]), false, false, -1);
      clients.put(client.name, client);
      openAgain();
   }

   void credit(String consumer, int more) {
      clients.get(consumer).credit += more;
      queue.deliverAsync();
   }

   /** burst commit|rollback (ID PRIORITY)…: sends in one transaction. */
   void burst(String[] words) throws Exception {
      ServerSession session = session("burst", true);
      for (int i = 2; i < words.length; i += 2) {
         session.send(message(new String[] {words[i], words[i + 1], "0", "0"}, 0), false, "producer");
      }
      if (words[1].equals("commit")) {
         session.commit();
      } else {
         session.rollback(false);
      }
      flush();
      session.close(false);
   }

   /** In a transacted session it waits for the decision. */
   void ack(String consumer, String id) throws Exception {
      Client client = clients.get(consumer);
      sessions.get(client.session).individualAcknowledge(client.consumer.getID(), held(client, id));
      if (client.session.startsWith("tx")) {
         client.acked.add(id);
         undecided.computeIfAbsent(client.session, name -> new ArrayList<>()).add(client);
      } else {
         giveBack(client);
      }
   }

   void release(String consumer, String id) throws Exception {
      Client client = clients.get(consumer);
      client.consumer.individualCancel(held(client, id), false);
      giveBack(client);
   }

   void reject(String consumer, String id) throws Exception {
      Client client = clients.get(consumer);
      client.consumer.reject(held(client, id));
      giveBack(client);
   }

   void commit(String session) throws Exception {
      sessions.get(session).commit();
      flush();
      for (Client client : taken(session)) {
         giveBack(client);
         flush();
      }
   }

   void rollback(String session) throws Exception {
      open = false;
      sessions.get(session).rollback(false);
      taken(session);
      for (Client client : clients.values()) {
         if (client.session.equals(session)) {
            client.inFlight = 0;
         }
      }
      openAgain();
   }

   void close(String consumer) throws Exception {
      open = false;
      clients.get(consumer).consumer.close(false);
      clients.remove(consumer);
      openAgain();
   }

   void resize(long ring) throws Exception {
      server.updateQueue(QueueConfiguration.of(name).setAddress(name)
         .setRoutingType(RoutingType.ANYCAST).setRingSize(ring));
   }

   void deliverNow(String id) throws Exception {
      for (MessageReference ref : queue.getScheduledMessages()) {
         if (id(ref).equals(id)) {
            queue.deliverScheduledMessage(ref.getMessageID());
            return;
         }
      }
   }

   // --- credit -----------------------------------------------------------------------------------

   void giveBack(Client client) {
      client.inFlight--;
      queue.deliverAsync();
   }

   void openAgain() throws Exception {
      flush();
      open = true;
      queue.deliverAsync();
   }

   List<Client> taken(String session) {
      List<Client> acking = undecided.remove(session);
      if (acking == null) {
         return List.of();
      }
      acking.forEach(client -> client.acked.clear());
      return acking;
   }

   long held(Client client, String id) {
      for (MessageReference ref : client.consumer.getDeliveringMessages()) {
         if (id(ref).equals(id)) {
            return ref.getMessageID();
         }
      }
      throw new IllegalStateException(client.name + " does not hold " + id);
   }

   SessionCallback callback() {
      return (SessionCallback) Proxy.newProxyInstance(
         Driver.class.getClassLoader(), new Class<?>[] {SessionCallback.class},
         (proxy, method, given) -> switch (method.getName()) {
            case "hasCredits" -> {
               Client client = client((ServerConsumer) given[0]);
               boolean takes = open && client != null && client.inFlight < client.credit;
               if (takes && given.length > 1 && given[1] != first()) {
                  isAtFault = true;
               }
               yield takes;
            }
            case "sendMessage" -> {
               MessageReference ref = (MessageReference) given[0];
               Client client = client((ServerConsumer) given[1]);
               client.inFlight++;
               tell("delivered", client.name, id(ref), given[2].toString());
               yield 1;
            }
            case "isWritable" -> true;
            default -> nothing(method.getReturnType());
         });
   }

   Client client(ServerConsumer consumer) {
      synchronized (clients) {
         for (Client client : clients.values()) {
            if (client.consumer == consumer) {
               return client;
            }
         }
      }
      return null;
   }

   /** A connection that never fails and has nobody to tell. */
   static RemotingConnection connection() {
      return (RemotingConnection) Proxy.newProxyInstance(
         Driver.class.getClassLoader(), new Class<?>[] {RemotingConnection.class},
         (proxy, method, given) -> switch (method.getName()) {
            case "getID" -> "driver";
            case "getRemoteAddress", "getLocalAddress", "getProtocolName" -> "here";
            case "equals" -> proxy == given[0];
            case "hashCode" -> 1;
            default -> nothing(method.getReturnType());
         });
   }

   static Object nothing(Class<?> type) {
      if (type == boolean.class) {
         return false;
      }
      return type == int.class ? (Object) 0 : type == long.class ? (Object) 0L : null;
   }

   /** ID PRIORITY DUE_MS EXPIRES_MS; times since 1970, 0 for none. */
   Message message(String[] words, int at) {
      CoreMessage message = new CoreMessage(server.getStorageManager().generateID(), 64);
      message.setAddress(SimpleString.of(name));
      message.setDurable(true);
      message.putStringProperty("id", words[at]);
      message.setPriority(Byte.parseByte(words[at + 1]));
      if (!words[at + 2].equals("0")) {
         message.setScheduledDeliveryTime(Long.parseLong(words[at + 2]));
      }
      message.setExpiration(Long.parseLong(words[at + 3]));
      return message;
   }

   // --- what is told -----------------------------------------------------------------------------

   /** Wait until nothing moves: what was due came, all adds up, and a flush changes nothing. */
   void comeToRest() throws Exception {
      long deadline = System.currentTimeMillis() + AT_REST_MS;
      String before = "";
      while (true) {
         flush();
         String now = "";
         synchronized (queue) {  // no message is half way in, see QueueImpl.addHead(List, boolean)
            if (addsUp() && !somethingIsDue()) {
               now = counts() + facts.size();
            }
         }
         if (!now.isEmpty() && now.equals(before)) {
            return;
         }
         before = now;
         if (System.currentTimeMillis() > deadline) {
            throw new IllegalStateException("the queue does not come to rest: " + counts());
         }
         if (now.isEmpty()) {
            Thread.sleep(1);
         }
      }
   }

   /** Wait until the queue's executor, which runs in order, has done what it was given so far. */
   void flush() throws Exception {
      FutureLatch latch = new FutureLatch();
      queue.getExecutor().execute(latch);
      if (!latch.await(AT_REST_MS)) {
         throw new IllegalStateException("the queue's executor is stuck");
      }
   }

   boolean addsUp() {
      return queue.getMessagesAdded() == queue.getPendingMessageCount() + queue.getDeliveringCount()
         + queue.getScheduledCount() + queue.getMessagesAcknowledged() + queue.getMessagesKilled()
         + queue.getMessagesExpired() + queue.getMessagesReplaced();
   }

   boolean somethingIsDue() {
      long now = System.currentTimeMillis();
      return queue.getScheduledMessages().stream().anyMatch(
         ref -> ref.getScheduledDeliveryTime() <= now);
   }

   /** All since the last answer: what came due between two commands belongs to the second. */
   String takeFacts() {
      synchronized (facts) {
         String taken = facts.toString();
         facts.clear();
         return taken;
      }
   }

   String counts() {
      return "{" + String.join(", ",
         "\"ready\": " + queue.getPendingMessageCount(),
         "\"delivering\": " + queue.getDeliveringCount(),
         "\"scheduled\": " + queue.getScheduledCount(),
         "\"messages\": " + queue.getMessageCount(),
         "\"added\": " + queue.getMessagesAdded(),
         "\"acked\": " + queue.getMessagesAcknowledged(),
         "\"evicted\": " + queue.getMessagesReplaced(),
         "\"expired\": " + queue.getMessagesExpired(),
         "\"dead\": " + queue.getMessagesKilled()) + "}";
   }

   String ready() {
      List<String> ids = new ArrayList<>();
      try (LinkedListIterator<MessageReference> refs = queue.iterator()) {
         while (refs.hasNext()) {
            ids.add(quoted(id(refs.next())));
         }
      }
      return ids.toString();
   }

   MessageReference first() {
      try (LinkedListIterator<MessageReference> refs = queue.iterator()) {
         return refs.hasNext() ? refs.next() : null;
      }
   }

   /** Is a message ready that a consumer would take? No selector is in use. */
   boolean isStuck() {
      return !queue.isPaused() && first() != null
         && clients.values().stream().anyMatch(client -> client.inFlight < client.credit);
   }

   String scheduled() {
      List<String> rows = new ArrayList<>();
      for (MessageReference ref : queue.getScheduledMessages()) {
         rows.add("[" + quoted(id(ref)) + ", " + ref.getScheduledDeliveryTime() + "]");
      }
      return rows.toString();
   }

   String delivering() {
      List<String> rows = new ArrayList<>();
      for (Client client : clients.values()) {
         List<String> ids = new ArrayList<>();
         for (MessageReference ref : client.consumer.getDeliveringMessages()) {
            if (!client.acked.contains(id(ref))) {
               ids.add(quoted(id(ref)));
            }
         }
         rows.add(quoted(client.name) + ": " + ids);
      }
      return "{" + String.join(", ", rows) + "}";
   }

   void tell(String... words) {
      List<String> row = new ArrayList<>();
      for (String word : words) {
         row.add(quoted(word));
      }
      facts.add(row.toString());
   }

   static String id(MessageReference ref) {
      return ref.getMessage().getStringProperty("id");
   }

   static String quoted(String text) {
      return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
   }
}
