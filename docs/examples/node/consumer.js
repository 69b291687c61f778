// A consumer of a ring queue with kafkajs: attach, receive, ack, release, and a session.
//
//   npm ci && node consumer.js BROKERS QUEUE TOPIC_TO_SEND_TO
//
// It acks the first message, releases the second, and when that comes back, acks it and sends another
// one in a single transaction. docs/protocol.md explains the commands.
import { Kafka, Partitioners, logLevel } from "kafkajs";

const CONTROL = "ringfaust.control";
const DISPATCHED = "ringfaust.dispatched";
const REPLIES = "ringfaust.replies";

class Ring {
  constructor(brokers, queue, name) {
    const kafka = new Kafka({ brokers: brokers.split(","), clientId: name, logLevel: logLevel.ERROR });
    // This partitioner chooses the partition of a key as Java does, which is that of the queue.
    const createPartitioner = Partitioners.DefaultPartitioner;
    Object.assign(this, { queue, name, asked: 0, waiting: [], wanted: [], answers: new Map() });
    this.admin = kafka.admin();
    this.producer = kafka.producer({ createPartitioner });
    this.session = kafka.producer({
      createPartitioner, transactionalId: name, maxInFlightRequests: 1, idempotent: true,
    });
    // Unless told otherwise, kafkajs reads only what was committed.
    this.consumer = kafka.consumer({ groupId: name, maxWaitTimeInMs: 200 });
  }

  async open() {
    await Promise.all([this.admin, this.producer, this.session, this.consumer].map((each) => each.connect()));
    const topics = [DISPATCHED, REPLIES];
    // Where the topics end now: an answer to what we write later cannot be missed.
    const ends = await Promise.all(topics.map((topic) => this.admin.fetchTopicOffsets(topic)));
    await this.consumer.subscribe({ topics, fromBeginning: false });
    const joined = new Promise((resolve) => this.consumer.on(this.consumer.events.GROUP_JOIN, resolve));
    await this.consumer.run({ autoCommit: false, eachMessage: async (record) => this.take(record) });
    await joined;
    topics.forEach((topic, index) =>
      ends[index].forEach(({ partition, high }) => this.consumer.seek({ topic, partition, offset: high })));
  }

  take({ topic, message }) {
    const header = (name) => message.headers["ringfaust-" + name]?.toString() ?? "";
    if (topic === REPLIES) {
      this.answers.get(message.key?.toString())?.(JSON.parse(message.value));
    } else if (header("queue") === this.queue && header("consumer") === this.name) {
      const delivery = {
        id: header("id"), number: Number(header("delivery")), again: header("redelivered") === "1",
        value: message.value,
      };
      const wanted = this.wanted.shift();
      if (wanted) wanted(delivery);
      else this.waiting.push(delivery);
    }
  }

  command(type, more) {
    return { key: this.queue, value: JSON.stringify({ type, queue: this.queue, consumer: this.name, ...more }) };
  }

  /** Writes a command and waits for its answer. */
  async ask(type, more = {}) {
    const reply = `${this.name}/${++this.asked}`;
    const answered = new Promise((resolve) => this.answers.set(reply, resolve));
    await this.producer.send({ topic: CONTROL, messages: [this.command(type, { ...more, reply })] });
    const answer = await answered;
    this.answers.delete(reply);
    if (!answer.ok) throw new Error(`${type} was refused: ${answer.text}`);
  }

  /** Returns the next message. */
  async receive() {
    return this.waiting.shift() ?? new Promise((resolve) => this.wanted.push(resolve));
  }

  /** Acks a message and sends another one: both or neither. */
  async ackAndSend(done, topic, value) {
    const transaction = await this.session.transaction();
    try {
      const ack = this.command("ack", { message: done.id, delivery: done.number });
      await transaction.send({ topic: CONTROL, messages: [ack] });
      await transaction.send({ topic, messages: [{ value }] });
      await transaction.commit();
    } catch (error) {
      await transaction.abort();
      throw error;
    }
  }

  async close() {
    await Promise.all([this.consumer, this.producer, this.session, this.admin].map((each) => each.disconnect()));
  }
}

const [brokers, queue, topic] = process.argv.slice(2);
const name = `node-${process.pid}`;
const ring = new Ring(brokers, queue, name);
await ring.open();
await ring.ask("attach", { credit: 1, session: name });
console.log("attached");

const first = await ring.receive();
console.log(`received ${first.id}: ${first.value}`);
await ring.ask("ack", { message: first.id, delivery: first.number });
console.log(`acked ${first.id}`);

const second = await ring.receive();
await ring.ask("release", { message: second.id, delivery: second.number });
console.log(`released ${second.id}`);

const again = await ring.receive();
console.log(`received ${again.id} again: ${again.again}`);
await ring.ackAndSend(again, topic, "done");
console.log("committed");
await ring.ask("detach");
console.log("detached");
await ring.close();
