/* The functions of encoder.py that append records to a batch: the same bytes in a fraction of the
   time. */

#include "native.h"

/* --- numbers and texts ------------------------------------------------------------------------ */

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

/* What begins each of ringfaust's headers: its name, behind the length. */
static const struct {
    const char *text;
    Py_ssize_t size;
} names[H_COUNT] = {HEADER_TABLE};

static void put_name(Buffer *b, int header) { put(b, names[header].text, names[header].size); }

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
    put_text_header(b, H_ID, OF(message, MESSAGE_ID));
    put_number_header(b, H_SEQUENCE, OF(message, MESSAGE_SEQUENCE));
    put_number_header(b, H_PRIORITY, OF(message, MESSAGE_PRIORITY));
    put_number_header(b, H_ENQUEUED_MS, OF(message, MESSAGE_ENQUEUED_MS));
    put_text_header(b, H_SOURCE, OF(OF(message, MESSAGE_PAYLOAD), PAYLOAD_SOURCE));
    PyObject *group = OF(message, MESSAGE_GROUP);
    if (is_true(b, group)) put_text_header(b, H_GROUP, group);
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
    PyObject *message = is_whole(effect, CLASS_EVICTED) ? OF(effect, EVICTED_MESSAGE) : NULL;
    if (!message || !is_message(message)) {
        b->failed = 1;
        return;
    }
    PyObject *form = OF(effect, EVICTED_PAYLOAD);
    PyObject *payload = OF(message, MESSAGE_PAYLOAD), *at_ms = OF(effect, EVICTED_AT_MS);
    if (!is_a(form, &PyUnicode_Type)) {
        b->failed = 1;
        return;
    }
    int is_full = PyUnicode_CompareWithASCIIString(form, "full") == 0;
    int has_key = is_full || PyUnicode_CompareWithASCIIString(form, "reference") == 0;
    PyObject *kept = PySequence_Fast(OF(payload, PAYLOAD_HEADERS), "headers are a sequence");
    if (!kept) {
        b->failed = 1;
        return;
    }
    put_data(b, has_key ? OF(payload, PAYLOAD_KEY) : Py_None);
    put_data(b, is_full ? OF(payload, PAYLOAD_VALUE) : Py_None);
    put_varint(b, COMMON + 7 + (is_full ? PySequence_Fast_GET_SIZE(kept) : 0)
                      + is_true(b, OF(message, MESSAGE_GROUP)));
    if (is_full) put_headers(b, kept);
    Py_DECREF(kept);
    put_common(b, OF(effect, EVICTED_QUEUE), message);
    put_text_header(b, H_REASON, OF(effect, EVICTED_REASON));
    put_text_header(b, H_CAUSE, OF(effect, EVICTED_CAUSE));
    put_number_header(b, H_RING_SIZE, OF(effect, EVICTED_RING_SIZE));
    put_number_header(b, H_READY, OF(effect, EVICTED_READY));
    put_number_header(b, H_TIME_MS, at_ms);
    put_whole_header(b, H_AGE_MS, between(b, OF(message, MESSAGE_ENQUEUED_MS), at_ms));
    put_number_header(b, H_HANDOVERS, OF(message, MESSAGE_HANDOVERS));
}

static void put_dispatched_record(Buffer *b, PyObject *effect) {
    PyObject *delivery = is_whole(effect, CLASS_DISPATCHED) ? OF(effect, DISPATCHED_DELIVERY) : NULL;
    if (!delivery || !is_delivery(delivery)) {
        b->failed = 1;
        return;
    }
    PyObject *message = OF(delivery, DELIVERY_MESSAGE);
    PyObject *payload = OF(message, MESSAGE_PAYLOAD);
    PyObject *kept = PySequence_Fast(OF(payload, PAYLOAD_HEADERS), "headers are a sequence");
    if (!kept) {
        b->failed = 1;
        return;
    }
    long long handovers = whole(b, OF(message, MESSAGE_HANDOVERS));
    long long expires_at_ms = whole(b, OF(message, MESSAGE_EXPIRES_AT_MS));
    int is_persistent = is_true(b, OF(message, MESSAGE_PERSISTENT));
    put_data(b, OF(payload, PAYLOAD_KEY));
    put_data(b, OF(payload, PAYLOAD_VALUE));
    put_varint(b, COMMON + 4 + PySequence_Fast_GET_SIZE(kept)
                      + is_true(b, OF(message, MESSAGE_GROUP)) + (handovers > 1)
                      + (expires_at_ms != 0) + !is_persistent);
    put_headers(b, kept);
    Py_DECREF(kept);
    put_common(b, OF(effect, DISPATCHED_QUEUE), message);
    put_text_header(b, H_CONSUMER, OF(delivery, DELIVERY_CONSUMER));
    put_number_header(b, H_DELIVERY, OF(delivery, DELIVERY_NUMBER));
    put_number_header(b, H_ATTEMPT, OF(message, MESSAGE_ATTEMPTS));
    put_whole_header(b, H_HANDOVERS, handovers);
    if (handovers > 1) put_whole_header(b, H_REDELIVERED, 1);
    if (expires_at_ms) put_whole_header(b, H_EXPIRES_AT_MS, expires_at_ms);
    if (!is_persistent) {
        put_name(b, H_DELIVERY_MODE);
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
        && PyByteArray_Resize(batch, size_then + Py_MAX(size_then - 16, 0)) < 0)
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
    if (!has_arguments(count, 4) || !LOADED()) return NULL;
    if (!is_a(arguments[0], &PyByteArray_Type)) return NULL;
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

PyObject *append_record(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_any_record);
}

PyObject *append_row(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_row);
}

PyObject *append_evicted(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_evicted_record);
}

PyObject *append_dispatched(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return append_made(arguments, count, put_dispatched_record);
}
