/* The function of create.py in C: one allocation, where `tuple.__new__` has four (ADR 38).

   A value whose fields can be in no cycle is hidden from the garbage collector, as CPython does with
   plain tuples: it would look at each of the messages that a worker holds. */

#include "native.h"

/* Whether a cycle may lead through this object. A dict that the collector does not track may be
   given other contents; a tuple may not. */
static int may_be_in_cycle(PyObject *object) {
    return PyObject_IS_GC(object) && (!PyTuple_Check(object) || PyObject_GC_IsTracked(object));
}

/* How many fields the classes have that were used last: they are few. */
static struct {
    PyTypeObject *kind;
    Py_ssize_t fields;
} known[64];

/* The number of fields of a named tuple's class, or -1: an exception. */
static Py_ssize_t fields_of(PyTypeObject *kind) {
    size_t place = ((size_t)kind >> 6 ^ (size_t)kind >> 12) % (sizeof known / sizeof *known);
    if (known[place].kind == kind) return known[place].fields;
    PyObject *names = PyObject_GetAttrString((PyObject *)kind, "_fields");
    Py_ssize_t count = names ? PyObject_Length(names) : -1;
    Py_XDECREF(names);
    if (count < 0) return -1;
    PyObject *other = (PyObject *)known[place].kind;
    known[place].kind = (PyTypeObject *)Py_NewRef(kind);
    known[place].fields = count;
    Py_XDECREF(other);
    return count;
}

PyObject *create(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count < 1 || !PyType_Check(arguments[0])
        || !PyType_IsSubtype((PyTypeObject *)arguments[0], &PyTuple_Type)
        || arguments[0] == (PyObject *)&PyTuple_Type) {
        PyErr_SetString(PyExc_TypeError, "expected the class of a named tuple, and its fields");
        return NULL;
    }
    PyTypeObject *kind = (PyTypeObject *)arguments[0];
    Py_ssize_t fields = fields_of(kind);
    if (fields < 0) return NULL;
    if (fields != count - 1) {
        PyErr_Format(PyExc_TypeError, "%s has %zd fields, not %zd", kind->tp_name, fields, count - 1);
        return NULL;
    }
    PyObject *made = new_tuple(kind, fields);
    if (!made) return NULL;
    int is_tracked = kind->tp_dictoffset != 0; /* its dict may refer to it */
    for (Py_ssize_t i = 1; i < count; i++) {
        PyTuple_SET_ITEM(made, i - 1, Py_NewRef(arguments[i]));
        is_tracked = is_tracked || may_be_in_cycle(arguments[i]);
    }
    if (!is_tracked) PyObject_GC_UnTrack(made);
    return made;
}
