/* The module `ringfaust._native`: its functions, and what they find in Python (ADR 43). */

#include "native.h"

Class classes[CLASS_COUNT] = {CLASS_TABLE};
PyObject *writers, *event_tail, *encode_table, *queue_texts;
int is_loaded;

/* The attribute of a module as a new reference, kept for ever. */
static PyObject *from(const char *module, const char *name) {
    PyObject *found = PyImport_ImportModule(module);
    PyObject *value = found ? PyObject_GetAttrString(found, name) : NULL;
    Py_XDECREF(found);
    return value;
}

static int find_class(Class *class) {
    PyObject *type = from(class->module, class->name);
    PyObject *names = type ? PyObject_GetAttrString(type, "_fields") : NULL;
    Py_ssize_t count = names ? PyObject_Length(names) : -1;
    Py_XDECREF(names);
    if (count == class->fields) {
        class->type = (PyTypeObject *)type;
        return 0;
    }
    if (count >= 0) PyErr_Format(PyExc_TypeError, "%R had other fields when _native was compiled", type);
    Py_XDECREF(type);
    return -1;
}

int load(void) {
    for (int i = 0; i < CLASS_COUNT; i++)
        if (find_class(&classes[i])) return -1;
    is_loaded = (writers = from("ringfaust.protocol.events", "WRITERS")) &&
        (event_tail = from("ringfaust.protocol.events", "event_tail")) &&
        (encode_table = from("ringfaust.protocol.stored_rows.writes", "encode_table")) &&
        (queue_texts = from("ringfaust.protocol.stored_rows.queue_rows", "queue_texts"));
    return is_loaded ? 0 : -1;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FAST(create),
    FAST(event_line),
    FAST(append_record),
    FAST(append_row),
    FAST(append_evicted),
    FAST(append_dispatched),
    {"encode_writes", encode_writes, METH_O, NULL},
    {"held_bytes", held_bytes, METH_O, NULL},
    {"records_of", records_of, METH_VARARGS, NULL},
    {NULL}};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ringfaust._native", "See ringfaust/native.", 0, functions, slots};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
