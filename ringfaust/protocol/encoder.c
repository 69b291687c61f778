/* The functions of encoder.py in C: the same bytes in a fraction of the time (ADR 38).

   If you change one, change the other: tests/protocol/test_encoder.py compares them. */

#include "native.h"

/* The digits of a number, written backwards into `room`; returns where they begin. */
static char *digits(long long number, char *behind) {
    unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    char *at = behind;
    do *--at = '0' + rest % 10;
    while (rest /= 10);
    if (number < 0) *--at = '-';
    return at;
}

static void put_whole(Buffer *b, long long number) {
    char room[24], *behind = room + sizeof room, *at = digits(number, behind);
    put(b, at, behind - at);
}

static void put_number(Buffer *b, PyObject *number) { put_whole(b, whole(b, number)); }

/* As Kafka writes whole numbers >= 0: zigzag, seven bits a byte, the lowest first. */
static char *write_varint(char *to, Py_ssize_t number) {
    unsigned long long rest = (unsigned long long)number << 1;
    for (; rest > 0x7F; rest >>= 7) *to++ = (char)(rest & 0x7F) | (char)0x80;
    *to++ = (char)rest;
    return to;
}

static void put_varint(Buffer *b, Py_ssize_t number) {
    char *to = reserve(b, 10);
    if (to) b->size = write_varint(to, number) - b->data;
}

/* Text as JSON, in ASCII. */
static void put_quoted(Buffer *b, PyObject *text) {
    if (b->failed) return;
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "not a text: %R", text);
        b->failed = 1;
        return;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *from = PyUnicode_DATA(text);
    char *to = reserve(b, 12 * length + 2); /* a character takes two escapes of 6 at most */
    if (!to) return;
    *to++ = '"';
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, from, i);
        if (c >= ' ' && c < 0x7F && c != '"' && c != '\\') {
            *to++ = (char)c;
            continue;
        }
        const char *special = "\"\\\n\r\t\f\b", *found = c && c < 0x80 ? strchr(special, c) : NULL;
        if (found) {
            *to++ = '\\';
            *to++ = "\"\\nrtfb"[found - special];
        } else if (c < 0x10000) {
            to += sprintf(to, "\\u%04x", c);
        } else {
            c -= 0x10000;
            to += sprintf(to, "\\u%04x\\u%04x", 0xD800 | (c >> 10), 0xDC00 | (c & 0x3FF));
        }
    }
    *to++ = '"';
    b->size = to - b->data;
}

enum { E_QUEUE, E_MESSAGE, E_REASON, E_CAUSE, E_RING_SIZE, E_READY, E_AT, E_PAYLOAD };
static Field evicted_fields[] = {{"queue"}, {"message"}, {"reason"}, {"cause"}, {"ring_size"},
                                 {"ready"}, {"at_ms"}, {"payload"}, {NULL}};

/* Added, Scheduled and Due have a queue and a message, Dispatched and Acked a queue and a delivery. */
enum { QUEUE, CONTENT };
static Field message_effect_fields[] = {{"queue"}, {"message"}, {NULL}};
static Field delivery_effect_fields[] = {{"queue"}, {"delivery"}, {NULL}};

static PyObject *Due, *Added, *Scheduled, *Dispatched, *Acked, *Evicted;
static PyObject *writers, *event_tail;

#define OF_EVICTED(tuple, field) GET(evicted_fields, tuple, field)

/* --- event lines ------------------------------------------------------------------------------ */

static void put_about(Buffer *b, const char *event, PyObject *queue, PyObject *message,
                      long long step) {
    PUT(b, "{\"step\":");
    put_whole(b, step);
    PUT(b, ",\"event\":\"");
    put(b, event, strlen(event));
    PUT(b, "\",\"queue\":");
    put_quoted(b, queue);
    PUT(b, ",\"sequence\":");
    put_number(b, OF_MESSAGE(message, M_SEQUENCE));
    PUT(b, ",\"id\":");
    put_quoted(b, OF_MESSAGE(message, M_ID));
}

static void put_added(Buffer *b, const char *event, PyObject *effect, long long step) {
    PyObject *message = GET(message_effect_fields, effect, CONTENT);
    if (!is_message(message)) {
        b->failed = 1;
        return;
    }
    put_about(b, event, GET(message_effect_fields, effect, QUEUE), message, step);
    PUT(b, ",\"source\":");
    put_quoted(b, OF_PAYLOAD(OF_MESSAGE(message, M_PAYLOAD), P_SOURCE));
    PUT(b, ",\"enqueued_ms\":");
    put_number(b, OF_MESSAGE(message, M_ENQUEUED));
    PUT(b, ",\"priority\":");
    put_number(b, OF_MESSAGE(message, M_PRIORITY));
    PUT(b, ",\"size_bytes\":");
    put_number(b, OF_MESSAGE(message, M_SIZE));
    long long due_ms = whole(b, OF_MESSAGE(message, M_DUE));
    if (due_ms) {
        PUT(b, ",\"due_ms\":");
        put_whole(b, due_ms);
    }
    long long expires_at_ms = whole(b, OF_MESSAGE(message, M_EXPIRES));
    if (expires_at_ms) {
        PUT(b, ",\"expires_at_ms\":");
        put_whole(b, expires_at_ms);
    }
    PyObject *group = OF_MESSAGE(message, M_GROUP);
    if (PyObject_IsTrue(group)) {
        PUT(b, ",\"group\":");
        put_quoted(b, group);
    }
}

static void put_due(Buffer *b, PyObject *effect, long long step) {
    PyObject *message = GET(message_effect_fields, effect, CONTENT);
    if (!is_message(message)) {
        b->failed = 1;
        return;
    }
    put_about(b, "due", GET(message_effect_fields, effect, QUEUE), message, step);
    PUT(b, ",\"due_ms\":");
    put_number(b, OF_MESSAGE(message, M_DUE));
}

static void put_held(Buffer *b, const char *event, PyObject *effect, long long step) {
    PyObject *delivery = GET(delivery_effect_fields, effect, CONTENT);
    if (!is_delivery(delivery)) {
        b->failed = 1;
        return;
    }
    PyObject *message = OF_DELIVERY(delivery, D_MESSAGE);
    put_about(b, event, GET(delivery_effect_fields, effect, QUEUE), message, step);
    PUT(b, ",\"consumer\":");
    put_quoted(b, OF_DELIVERY(delivery, D_CONSUMER));
    PUT(b, ",\"delivery\":");
    put_number(b, OF_DELIVERY(delivery, D_NUMBER));
    PUT(b, ",\"attempt\":");
    put_number(b, OF_MESSAGE(message, M_ATTEMPTS));
    PUT(b, ",\"handovers\":");
    put_number(b, OF_MESSAGE(message, M_HANDOVERS));
}

static void put_evicted(Buffer *b, PyObject *effect, long long step) {
    PyObject *message = OF_EVICTED(effect, E_MESSAGE);
    if (!is_message(message)) {
        b->failed = 1;
        return;
    }
    put_about(b, "evicted", OF_EVICTED(effect, E_QUEUE), message, step);
    Py_ssize_t size;
    PUT(b, ",\"reason\":\"");
    const char *reason = utf8(b, OF_EVICTED(effect, E_REASON), &size);
    put(b, reason, size);
    PUT(b, "\",\"cause\":");
    put_quoted(b, OF_EVICTED(effect, E_CAUSE));
    PUT(b, ",\"ready\":");
    put_number(b, OF_EVICTED(effect, E_READY));
    PUT(b, ",\"ring_size\":");
    put_number(b, OF_EVICTED(effect, E_RING_SIZE));
    PUT(b, ",\"age_ms\":");
    put_whole(b, whole(b, OF_EVICTED(effect, E_AT)) - whole(b, OF_MESSAGE(message, M_ENQUEUED)));
    PUT(b, ",\"handovers\":");
    put_number(b, OF_MESSAGE(message, M_HANDOVERS));
}

/* An effect that is not frequent: as encoder.py does it. */
static PyObject *other_line(PyObject *effect, PyObject *const *arguments) {
    PyObject *line = NULL, *tail = NULL, *whole_line = NULL;
    PyObject *writer = PyObject_GetItem(writers, (PyObject *)Py_TYPE(effect));
    if (writer) line = PyObject_CallFunctionObjArgs(writer, effect, arguments[1], NULL);
    if (line) tail = PyObject_CallFunctionObjArgs(event_tail, arguments[2], arguments[3], NULL);
    if (tail) whole_line = PyUnicode_Concat(line, tail);
    Py_XDECREF(writer);
    Py_XDECREF(line);
    Py_XDECREF(tail);
    return whole_line;
}

static PyObject *as_text(Buffer *b) {
    PyObject *made = b->failed ? NULL : PyUnicode_New(b->size, 127);
    if (made) memcpy(PyUnicode_1BYTE_DATA(made), b->data, b->size);
    end(b);
    return made;
}

static PyObject *event_line(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (!has_arguments(count, 4)) return NULL;
    PyObject *effect = arguments[0], *kind = (PyObject *)Py_TYPE(effect);
    Buffer b;
    begin(&b);
    long long step = whole(&b, arguments[1]);
    if (kind == Added) put_added(&b, "added", effect, step);
    else if (kind == Evicted) put_evicted(&b, effect, step);
    else if (kind == Dispatched) put_held(&b, "dispatched", effect, step);
    else if (kind == Acked) put_held(&b, "acked", effect, step);
    else if (kind == Scheduled) put_added(&b, "scheduled", effect, step);
    else if (kind == Due) put_due(&b, effect, step);
    else return other_line(effect, arguments);
    PUT(&b, ",\"time_ms\":");
    put_number(&b, arguments[2]);
    PUT(&b, ",\"by\":");
    put_quoted(&b, arguments[3]);
    PUT(&b, "}");
    return as_text(&b);
}

/* --- records ---------------------------------------------------------------------------------- */

/* A key or a value, with its length; -1 stands for null. */
static void put_data(Buffer *b, PyObject *data) {
    if (data == Py_None) {
        PUT(b, "\1");
    } else if (PyBytes_Check(data)) {
        put_varint(b, PyBytes_GET_SIZE(data));
        put(b, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
    } else {
        if (!b->failed) PyErr_Format(PyExc_TypeError, "expected bytes, found %R", Py_TYPE(data));
        b->failed = 1;
    }
}

static void put_text(Buffer *b, PyObject *text) {
    Py_ssize_t size;
    const char *raw = utf8(b, text, &size);
    if (!raw) return;
    put_varint(b, size);
    put(b, raw, size);
}

/* Headers without their number. */
static void put_headers(Buffer *b, PyObject *headers) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(headers) && !b->failed; i++) {
        PyObject *pair = PySequence_Fast_GET_ITEM(headers, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_Format(PyExc_TypeError, "a header is a name and a value, not %R", pair);
            b->failed = 1;
            return;
        }
        put_text(b, PyTuple_GET_ITEM(pair, 0));
        put_data(b, PyTuple_GET_ITEM(pair, 1));
    }
}

/* The beginnings of ringfaust's headers: the length of the name, and the name. */
enum { H_QUEUE, H_ID, H_SEQUENCE, H_PRIORITY, H_ENQUEUED, H_SOURCE, H_GROUP, H_REASON, H_CAUSE,
       H_RING_SIZE, H_READY, H_TIME, H_AGE, H_HANDOVERS, H_CONSUMER, H_DELIVERY, H_ATTEMPT,
       H_REDELIVERED, H_EXPIRES, H_MODE, HEADERS };
static const char *header_constants[HEADERS] = {
    "QUEUE", "ID", "SEQUENCE", "PRIORITY", "ENQUEUED_MS", "SOURCE", "GROUP", "REASON", "CAUSE",
    "RING_SIZE", "READY", "TIME_MS", "AGE_MS", "HANDOVERS", "CONSUMER", "DELIVERY", "ATTEMPT",
    "REDELIVERED", "EXPIRES_AT_MS", "DELIVERY_MODE"};
static char header_starts[HEADERS][64];

static void put_name(Buffer *b, int header) {
    put(b, header_starts[header], 1 + header_starts[header][0] / 2);
}

static void put_text_header(Buffer *b, int header, PyObject *text) {
    put_name(b, header);
    put_text(b, text);
}

static void put_whole_header(Buffer *b, int header, long long number) {
    char room[24], *behind = room + sizeof room, *at = digits(number, behind);
    put_name(b, header);
    put_varint(b, behind - at);
    put(b, at, behind - at);
}

static void put_number_header(Buffer *b, int header, PyObject *number) {
    put_whole_header(b, header, whole(b, number));
}

/* The headers that every output has; without that of the group. */
#define COMMON 6

static void put_common(Buffer *b, PyObject *queue, PyObject *message) {
    put_text_header(b, H_QUEUE, queue);
    put_text_header(b, H_ID, OF_MESSAGE(message, M_ID));
    put_number_header(b, H_SEQUENCE, OF_MESSAGE(message, M_SEQUENCE));
    put_number_header(b, H_PRIORITY, OF_MESSAGE(message, M_PRIORITY));
    put_number_header(b, H_ENQUEUED, OF_MESSAGE(message, M_ENQUEUED));
    put_text_header(b, H_SOURCE, OF_PAYLOAD(OF_MESSAGE(message, M_PAYLOAD), P_SOURCE));
    PyObject *group = OF_MESSAGE(message, M_GROUP);
    if (PyObject_IsTrue(group)) put_text_header(b, H_GROUP, group);
}

static void put_record(Buffer *b, PyObject *key, PyObject *value, PyObject *all_headers) {
    PyObject *headers = PySequence_Fast(all_headers, "headers are a sequence");
    if (!headers) {
        b->failed = 1;
        return;
    }
    put_data(b, key);
    put_data(b, value);
    put_varint(b, PySequence_Fast_GET_SIZE(headers));
    put_headers(b, headers);
    Py_DECREF(headers);
}

static void put_evicted_record(Buffer *b, PyObject *effect) {
    if (!is_a(effect, Evicted) || !is_message(OF_EVICTED(effect, E_MESSAGE))) {
        b->failed = 1;
        return;
    }
    PyObject *message = OF_EVICTED(effect, E_MESSAGE), *form = OF_EVICTED(effect, E_PAYLOAD);
    PyObject *payload = OF_MESSAGE(message, M_PAYLOAD), *at_ms = OF_EVICTED(effect, E_AT);
    if (!is_a(form, (PyObject *)&PyUnicode_Type)) {
        b->failed = 1;
        return;
    }
    int is_full = PyUnicode_CompareWithASCIIString(form, "full") == 0;
    int has_key = is_full || PyUnicode_CompareWithASCIIString(form, "reference") == 0;
    PyObject *kept = PySequence_Fast(OF_PAYLOAD(payload, P_HEADERS), "headers are a sequence");
    if (!kept) {
        b->failed = 1;
        return;
    }
    put_data(b, has_key ? OF_PAYLOAD(payload, P_KEY) : Py_None);
    put_data(b, is_full ? OF_PAYLOAD(payload, P_VALUE) : Py_None);
    put_varint(b, COMMON + 7 + (is_full ? PySequence_Fast_GET_SIZE(kept) : 0)
                      + PyObject_IsTrue(OF_MESSAGE(message, M_GROUP)));
    if (is_full) put_headers(b, kept);
    Py_DECREF(kept);
    put_common(b, OF_EVICTED(effect, E_QUEUE), message);
    put_text_header(b, H_REASON, OF_EVICTED(effect, E_REASON));
    put_text_header(b, H_CAUSE, OF_EVICTED(effect, E_CAUSE));
    put_number_header(b, H_RING_SIZE, OF_EVICTED(effect, E_RING_SIZE));
    put_number_header(b, H_READY, OF_EVICTED(effect, E_READY));
    put_number_header(b, H_TIME, at_ms);
    put_whole_header(b, H_AGE, whole(b, at_ms) - whole(b, OF_MESSAGE(message, M_ENQUEUED)));
    put_number_header(b, H_HANDOVERS, OF_MESSAGE(message, M_HANDOVERS));
}

static void put_dispatched_record(Buffer *b, PyObject *effect) {
    PyObject *delivery = is_a(effect, Dispatched) ? GET(delivery_effect_fields, effect, CONTENT) : NULL;
    if (!delivery || !is_delivery(delivery)) {
        b->failed = 1;
        return;
    }
    PyObject *message = OF_DELIVERY(delivery, D_MESSAGE);
    PyObject *payload = OF_MESSAGE(message, M_PAYLOAD);
    PyObject *kept = PySequence_Fast(OF_PAYLOAD(payload, P_HEADERS), "headers are a sequence");
    if (!kept) {
        b->failed = 1;
        return;
    }
    long long handovers = whole(b, OF_MESSAGE(message, M_HANDOVERS));
    long long expires_at_ms = whole(b, OF_MESSAGE(message, M_EXPIRES));
    int is_persistent = PyObject_IsTrue(OF_MESSAGE(message, M_PERSISTENT));
    put_data(b, OF_PAYLOAD(payload, P_KEY));
    put_data(b, OF_PAYLOAD(payload, P_VALUE));
    put_varint(b, COMMON + 4 + PySequence_Fast_GET_SIZE(kept)
                      + PyObject_IsTrue(OF_MESSAGE(message, M_GROUP)) + (handovers > 1)
                      + (expires_at_ms != 0) + !is_persistent);
    put_headers(b, kept);
    Py_DECREF(kept);
    put_common(b, GET(delivery_effect_fields, effect, QUEUE), message);
    put_text_header(b, H_CONSUMER, OF_DELIVERY(delivery, D_CONSUMER));
    put_number_header(b, H_DELIVERY, OF_DELIVERY(delivery, D_NUMBER));
    put_number_header(b, H_ATTEMPT, OF_MESSAGE(message, M_ATTEMPTS));
    put_whole_header(b, H_HANDOVERS, handovers);
    if (handovers > 1) put_whole_header(b, H_REDELIVERED, 1);
    if (expires_at_ms) put_whole_header(b, H_EXPIRES, expires_at_ms);
    if (!is_persistent) {
        put_name(b, H_MODE);
        PUT(b, "\x1cnon_persistent"); /* its length, 14, as a varint */
    }
}

/* --- batches ---------------------------------------------------------------------------------- */

/* How many bytes a number takes as a varint. */
static Py_ssize_t varint_bytes(Py_ssize_t number) {
    Py_ssize_t count = 1;
    for (unsigned long long rest = (unsigned long long)number << 1; rest > 0x7F; rest >>= 7) count++;
    return count;
}

/* Appends a record to a batch, unless that has too many bytes then. */
static PyObject *append(PyObject *batch, Py_ssize_t number, Buffer *record, Py_ssize_t most_bytes) {
    if (record->failed) return NULL;
    Py_ssize_t body_bytes = 2 + varint_bytes(number) + record->size;
    Py_ssize_t size = PyByteArray_GET_SIZE(batch);
    Py_ssize_t size_then = size + varint_bytes(body_bytes) + body_bytes;
    if (number && size_then > most_bytes) Py_RETURN_FALSE;
    /* Python lets an array grow by an eighth at a time, so it would copy each byte eight times. If
       an array has less than half of its memory in use, it gives the rest back: hence the 16. */
    if (size_then >= ((PyByteArrayObject *)batch)->ob_alloc
        && PyByteArray_Resize(batch, 2 * size_then - 16) < 0)
        return NULL;
    if (PyByteArray_Resize(batch, size_then) < 0) return NULL;
    char *to = PyByteArray_AS_STRING(batch) + size;
    to = write_varint(to, body_bytes);
    *to++ = 0; /* no attributes */
    *to++ = 0; /* no time of its own */
    to = write_varint(to, number);
    memcpy(to, record->data, record->size);
    Py_RETURN_TRUE;
}

/* The functions have the same arguments: batch, number, what to append, most bytes. */
static PyObject *append_made(PyObject *const *arguments, Py_ssize_t count,
                             void (*make)(Buffer *, PyObject *)) {
    if (!has_arguments(count, 4)) return NULL;
    if (!is_a(arguments[0], (PyObject *)&PyByteArray_Type)) return NULL;
    Py_ssize_t number = PyLong_AsSsize_t(arguments[1]), most_bytes = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    Buffer b;
    begin(&b);
    make(&b, arguments[2]);
    PyObject *is_appended = append(arguments[0], number, &b, most_bytes);
    end(&b);
    return is_appended;
}

static void put_any_record(Buffer *b, PyObject *record) {
    if (PyTuple_Check(record) && PyTuple_GET_SIZE(record) == 3) {
        put_record(b, PyTuple_GET_ITEM(record, 0), PyTuple_GET_ITEM(record, 1), PyTuple_GET_ITEM(record, 2));
    } else {
        PyErr_Format(PyExc_TypeError, "a record is a key, a value and headers, not %R", record);
        b->failed = 1;
    }
}

static void put_row(Buffer *b, PyObject *row) {
    if (PyTuple_Check(row) && PyTuple_GET_SIZE(row) == 2) {
        put_data(b, PyTuple_GET_ITEM(row, 0));
        put_data(b, PyTuple_GET_ITEM(row, 1));
        PUT(b, "\0"); /* no headers */
    } else {
        PyErr_Format(PyExc_TypeError, "a row is a key and a value, not %R", row);
        b->failed = 1;
    }
}

static PyObject *append_record(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_any_record);
}

static PyObject *append_row(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_row);
}

static PyObject *append_evicted(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_evicted_record);
}

static PyObject *append_dispatched(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_dispatched_record);
}

/* --- the module ------------------------------------------------------------------------------- */

static int find_headers(void) {
    for (int header = 0; header < HEADERS; header++) {
        PyObject *name = from("ringfaust.protocol.headers", header_constants[header]);
        Py_ssize_t size;
        const char *raw = name ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
        if (!raw) return -1;
        if (size >= (Py_ssize_t)sizeof header_starts[header]) {
            PyErr_Format(PyExc_ValueError, "the name of the header is too long: %R", name);
            return -1;
        }
        header_starts[header][0] = (char)(2 * size);
        memcpy(header_starts[header] + 1, raw, size);
    }
    return 0;
}

static int load(PyObject *module) {
    Added = from("ringfaust.core.effects", "Added");
    Due = from("ringfaust.core.effects", "Due");
    Scheduled = from("ringfaust.core.effects", "Scheduled");
    Dispatched = from("ringfaust.core.effects", "Dispatched");
    Acked = from("ringfaust.core.effects", "Acked");
    Evicted = from("ringfaust.core.effects", "Evicted");
    writers = from("ringfaust.protocol.events", "WRITERS");
    event_tail = from("ringfaust.protocol.events", "event_tail");
    if (!writers || !event_tail || find_messages()) return -1;
    if (find_fields(Evicted, evicted_fields)
        || find_fields(Added, message_effect_fields)
        || find_fields(Scheduled, message_effect_fields)
        || find_fields(Due, message_effect_fields)
        || find_fields(Dispatched, delivery_effect_fields)
        || find_fields(Acked, delivery_effect_fields))
        return -1;
    return find_headers();
}

static PyMethodDef functions[] = {
    {"event_line", (PyCFunction)(void (*)(void))event_line, METH_FASTCALL, NULL},
    {"append_record", (PyCFunction)(void (*)(void))append_record, METH_FASTCALL, NULL},
    {"append_row", (PyCFunction)(void (*)(void))append_row, METH_FASTCALL, NULL},
    {"append_evicted", (PyCFunction)(void (*)(void))append_evicted, METH_FASTCALL, NULL},
    {"append_dispatched", (PyCFunction)(void (*)(void))append_dispatched, METH_FASTCALL, NULL},
    {NULL}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, load}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ringfaust.protocol.encoder", "See encoder.py.", 0, functions, slots};

PyMODINIT_FUNC PyInit_encoder(void) { return PyModuleDef_Init(&definition); }
