/* The function `event_line` of encoder.py: the same lines in a fraction of the time. */

#include "native.h"

/* --- texts and numbers ------------------------------------------------------------------------ */

static void put_whole(Buffer *b, long long number) {
    char room[24], *behind = room + sizeof room, *at = digits(number, behind);
    put(b, at, behind - at);
}

static void put_number(Buffer *b, PyObject *number) { put_whole(b, whole(b, number)); }

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

/* --- what lines say of each effect, behind the message's sequence and id ----------------------- */

static void put_field(Buffer *b, const char *name, PyObject *number) {
    put(b, name, strlen(name));
    put_number(b, number);
}

/* A number of which a line says nothing if it is 0. */
static void put_known(Buffer *b, const char *name, PyObject *number) {
    long long found = whole(b, number);
    if (!found) return;
    put(b, name, strlen(name));
    put_whole(b, found);
}

static void put_added(Buffer *b, PyObject *effect, PyObject *message) {
    PUT(b, ",\"source\":");
    put_quoted(b, OF(OF(message, MESSAGE_PAYLOAD), PAYLOAD_SOURCE));
    put_field(b, ",\"enqueued_ms\":", OF(message, MESSAGE_ENQUEUED_MS));
    put_field(b, ",\"priority\":", OF(message, MESSAGE_PRIORITY));
    put_field(b, ",\"size_bytes\":", OF(message, MESSAGE_SIZE_BYTES));
    put_known(b, ",\"due_ms\":", OF(message, MESSAGE_DUE_MS));
    put_known(b, ",\"expires_at_ms\":", OF(message, MESSAGE_EXPIRES_AT_MS));
    PyObject *group = OF(message, MESSAGE_GROUP);
    if (is_true(b, group)) {
        PUT(b, ",\"group\":");
        put_quoted(b, group);
    }
}

static void put_due(Buffer *b, PyObject *effect, PyObject *message) {
    put_field(b, ",\"due_ms\":", OF(message, MESSAGE_DUE_MS));
}

static void put_held(Buffer *b, PyObject *effect, PyObject *delivery) {
    PyObject *message = OF(delivery, DELIVERY_MESSAGE);
    PUT(b, ",\"consumer\":");
    put_quoted(b, OF(delivery, DELIVERY_CONSUMER));
    put_field(b, ",\"delivery\":", OF(delivery, DELIVERY_NUMBER));
    put_field(b, ",\"attempt\":", OF(message, MESSAGE_ATTEMPTS));
    put_field(b, ",\"handovers\":", OF(message, MESSAGE_HANDOVERS));
}

static void put_evicted(Buffer *b, PyObject *effect, PyObject *message) {
    PUT(b, ",\"reason\":");
    put_quoted(b, OF(effect, EVICTED_REASON));
    PUT(b, ",\"cause\":");
    put_quoted(b, OF(effect, EVICTED_CAUSE));
    put_field(b, ",\"ready\":", OF(effect, EVICTED_READY));
    put_field(b, ",\"ring_size\":", OF(effect, EVICTED_RING_SIZE));
    PUT(b, ",\"age_ms\":");
    put_whole(b, between(b, OF(message, MESSAGE_ENQUEUED_MS), OF(effect, EVICTED_AT_MS)));
    put_field(b, ",\"handovers\":", OF(message, MESSAGE_HANDOVERS));
}

/* --- lines ------------------------------------------------------------------------------------ */

/* The effects that are frequent, the most frequent first. Each has a queue, and a message or a
   delivery. */
static const struct {
    int class, queue_at, content_at;
    const char *event;
    int (*is_content)(PyObject *);
    void (*put_rest)(Buffer *, PyObject *effect, PyObject *content);
} frequent[] = {
    {CLASS_ADDED, ADDED_QUEUE, ADDED_MESSAGE, "added", is_message, put_added},
    {CLASS_EVICTED, EVICTED_QUEUE, EVICTED_MESSAGE, "evicted", is_message, put_evicted},
    {CLASS_DISPATCHED, DISPATCHED_QUEUE, DISPATCHED_DELIVERY, "dispatched", is_delivery, put_held},
    {CLASS_ACKED, ACKED_QUEUE, ACKED_DELIVERY, "acked", is_delivery, put_held},
    {CLASS_SCHEDULED, SCHEDULED_QUEUE, SCHEDULED_MESSAGE, "scheduled", is_message, put_added},
    {CLASS_DUE, DUE_QUEUE, DUE_MESSAGE, "due", is_message, put_due},
};
enum { FREQUENT = sizeof frequent / sizeof *frequent };

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

static void put_line(Buffer *b, int kind, PyObject *const *arguments) {
    PyObject *effect = arguments[0];
    PyObject *content = is_whole(effect, frequent[kind].class) ? OF(effect, frequent[kind].content_at) : NULL;
    if (!content || !frequent[kind].is_content(content)) {
        b->failed = 1;
        return;
    }
    PyObject *message = frequent[kind].is_content == is_delivery ? OF(content, DELIVERY_MESSAGE) : content;
    put_field(b, "{\"step\":", arguments[1]);
    PUT(b, ",\"event\":\"");
    put(b, frequent[kind].event, strlen(frequent[kind].event));
    PUT(b, "\",\"queue\":");
    put_quoted(b, OF(effect, frequent[kind].queue_at));
    put_field(b, ",\"sequence\":", OF(message, MESSAGE_SEQUENCE));
    PUT(b, ",\"id\":");
    put_quoted(b, OF(message, MESSAGE_ID));
    frequent[kind].put_rest(b, effect, content);
    put_field(b, ",\"time_ms\":", arguments[2]);
    PUT(b, ",\"by\":");
    put_quoted(b, arguments[3]);
    PUT(b, "}");
}

PyObject *event_line(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (!has_arguments(count, 4) || !LOADED()) return NULL;
    int kind = 0;
    while (kind < FREQUENT && Py_TYPE(arguments[0]) != TYPE(frequent[kind].class)) kind++;
    if (kind == FREQUENT) return other_line(arguments[0], arguments);
    Buffer b;
    begin(&b);
    put_line(&b, kind, arguments);
    return as_text(&b);
}
