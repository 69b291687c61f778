"""queues.yaml and worker.yaml: valid files are read, and mistakes are reported with their line."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

import pytest
import yaml

from ringfaust.config import (
    ConfigError,
    QueuesConfig,
    RouteConfig,
    SecurityConfig,
    WorkerConfig,
    load,
    load_queues,
    load_worker,
)
from ringfaust.config import worker as worker_config
from ringfaust.config.documents import FILE_BYTES, setting_value, shipped
from ringfaust.core.settings import STORED_NAMES, WRITTEN_NAMES, QueueSpec
from ringfaust.errors import RingfaustError
from ringfaust.protocol import route_checks
from ringfaust.protocol.document_checks import document_faults
from ringfaust.protocol.route_checks import CheckedRoute, faults_together
from ringfaust.protocol.routes import RouteTemplate

SECRET = "hunter2"


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str | bytes, name: str = "queues.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


# --- what is right ------------------------------------------------------------------------------


def test_the_shipped_queues_are_valid():
    worker, queues = load()
    assert queues.routes == (RouteConfig(topic="orders", queue="orders"),)
    catalog = queues.catalog()
    assert catalog.declares("orders")
    assert catalog.spec("orders", {}) == QueueSpec(ring_size=1000)
    assert worker == WorkerConfig()


def test_the_shipped_worker_file_shows_every_default():
    path = shipped("config") / "worker.yaml"
    assert load_worker(path) == load_worker() == WorkerConfig()
    shown = yaml.safe_load(path.read_text())
    assert set(shown) == set(WorkerConfig.model_fields)
    for part in ("security", "web"):
        assert set(shown[part]) == set(type(getattr(WorkerConfig(), part)).model_fields)


def test_the_comments_in_the_shipped_queues_state_the_real_defaults():
    text = (shipped("config") / "queues.yaml").read_text()
    documented = dict(re.findall(r"(?m)^#   ([a-z_]+): (\S+)  ", text))
    assert set(documented) == set(WRITTEN_NAMES)
    for name, value in documented.items():
        assert yaml.safe_load(value) == getattr(QueueSpec(), STORED_NAMES.get(name, name)), name


@pytest.mark.parametrize("name", STORED_NAMES)
def test_a_time_may_be_named_with_and_without_its_unit(name, write):
    with_unit = load_queues(write(f"queues: {{orders: {{{name}: 7000}}}}"))
    without = load_queues(write(f"queues: {{orders: {{{STORED_NAMES[name]}: 7000}}}}"))
    assert with_unit == without
    assert getattr(with_unit.catalog().spec("orders", {}), STORED_NAMES[name]) == 7000


def test_a_setting_with_two_names_is_refused(write):
    with pytest.raises(ConfigError, match=r"consumer_timeout_ms: is also given as") as caught:
        load_queues(
            write("queues:\n  orders:\n    consumer_timeout: 1\n    consumer_timeout_ms: 2\n")
        )
    assert caught.value.faults[0].line == 4
    with pytest.raises(ConfigError, match=r"clock_skew_max: is also given as clock_skew_max_ms"):
        load_worker(write("clock_skew_max: 200\nclock_skew_max_ms: 300\n"))


def test_the_commented_examples_in_the_shipped_queues_are_valid(write):
    text = (shipped("config") / "queues.yaml").read_text()
    queues = load_queues(
        write(re.sub(r"(?m)^  # (  )?(?=- topic|queue:|departures|ring_size)", r"  \1", text))
    )
    assert queues.routes[1].queue == "departures.{key}"
    assert queues.catalog().spec("departures.UA", {}).ring_size == 50


def test_a_queue_without_fields_is_declared(write):
    queues = load_queues(write("queues:\n  orders:\n"))
    assert queues.catalog().declares("orders")


def test_overrides_win_unless_they_are_none(write):
    path = write("bootstrap_servers: a:1\npartitions: 2\n", "worker.yaml")
    worker = load_worker(path, bootstrap_servers="b:2, c:3", partitions=None)
    assert (worker.bootstrap_servers, worker.partitions) == ("b:2,c:3", 2)


def test_each_application_has_a_folder_in_the_users_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert WorkerConfig(application="shop").data_dir == tmp_path / "ringfaust" / "shop"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert WorkerConfig().data_dir == tmp_path / ".local/state/ringfaust/ringfaust"
    worker = load_worker(data_dir="~/here", web={"token_file": "~/token"})
    assert (worker.data_dir, worker.web.token_file) == (tmp_path / "here", tmp_path / "token")


@pytest.mark.parametrize(
    ("container", "expected_mib"),
    [(None, 2_048), ("max", 2_048), (8 << 30, 1_024), (1 << 30, 256), (1 << 62, 2_048)],
)
def test_cache_and_budget_are_shares_of_the_memory(monkeypatch, tmp_path, container, expected_mib):
    pages = {"SC_PHYS_PAGES": 16 << 18, "SC_PAGE_SIZE": 4_096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    limit = tmp_path / "memory.max"
    if container is not None:
        limit.write_text(f"{container}\n")
    monkeypatch.setattr(worker_config, "_CGROUP_LIMITS", (tmp_path / "missing", limit))
    monkeypatch.setattr(worker_config, "_OWN_CGROUP", tmp_path / "missing")
    assert WorkerConfig().cache_bytes == expected_mib << 20
    memory = container if container in (8 << 30, 1 << 30) else 16 << 30
    assert WorkerConfig().memory_bytes == memory * 3 // 4


@pytest.mark.parametrize(("service", "the_slice"), [("1073741824", "max"), ("max", "1073741824")])
def test_the_budget_is_a_share_of_what_a_systemd_service_may_have(
    monkeypatch, tmp_path, service, the_slice
):
    """With MemoryMax=1G the system killed the worker before it paused its intake."""
    own = tmp_path / "cgroup"
    own.write_text("1:name=systemd:/\n0::/system.slice/worker.service\n")
    folder = tmp_path / "system.slice" / "worker.service"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text(f"{service}\n")
    (folder.parent / "memory.max").write_text(f"{the_slice}\n")
    monkeypatch.setattr(worker_config, "_CGROUPS", tmp_path)
    monkeypatch.setattr(worker_config, "_OWN_CGROUP", own)
    assert WorkerConfig().memory_bytes == 768 << 20


def test_null_is_the_default_of_a_setting_that_depends_on_the_machine(write):
    worker = load_worker(
        write("cache_bytes: null\ndata_dir: null\nmemory_bytes: null", "worker.yaml")
    )
    assert worker.cache_bytes == WorkerConfig().cache_bytes
    assert worker.memory_bytes == WorkerConfig().memory_bytes
    assert worker.data_dir == WorkerConfig().data_dir


def test_the_worker_file_is_optional(write, tmp_path):
    write("queues: {orders: }\n")
    worker, queues = load(tmp_path, application="shop")
    assert worker.application == "shop"
    assert list(queues.queues) == ["orders"]


# --- routes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "hop", "partitions", "needs"),
    [
        ("orders", "auto", 4, True),
        ("orders", "auto", 1, False),
        ("orders", "always", 1, True),
        ("orders", "never", 4, False),
        ("{topic}", "auto", 4, True),
        ("{key}", "auto", 4, False),
        ("{topic}.{key}", "auto", 4, False),
        ("{header:region}", "auto", 4, True),
        # a.b + c and a + b.c are one queue of two keys
        ("{key}.{header:region}", "auto", 4, True),
    ],
)
def test_records_take_the_hop_only_if_necessary(queue, hop, partitions, needs):
    assert RouteConfig(topic="t", queue=queue, hop=hop).needs_hop(partitions) is needs


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("x.{key}", "x.{key}", False),  # one key, one partition, whichever the topic
        ("x.{key}", "{key}", True),  # x.a by key a, or by key x.a
        ("x.{key}", "x.{header:h}", True),
        ("x.{key}", "x.fixed", True),
        ("x.{key}", "y.fixed", False),
        ("x.{key}", "y.{header:h}", False),
        ("{key}.x", "{header:h}.y", False),
        ("x.{header:h}", "x.{header:g}", False),  # both through the hop
        ("same", "same", False),
        ("{topic}.{key}", "{topic}.{key}", False),  # other topics, other names
    ],
)
def test_routes_that_would_split_a_queue_conflict(one, other, clash):
    routes = CheckedRoute("a", one), CheckedRoute("b", other)
    assert bool([*faults_together(routes, (), 4)]) is clash
    assert bool([*faults_together(routes[::-1], (), 4)]) is clash
    assert not [*faults_together(routes, (), 1)]


def test_each_route_is_read_a_few_times_however_many_there_are(monkeypatch):
    read = []

    def template(text):
        read.append(text)
        return RouteTemplate(text)

    monkeypatch.setattr(route_checks, "RouteTemplate", template)
    names = [f"a{number}" for number in range(50)]
    routes = [CheckedRoute(name, f"{name}.{{key}}") for name in names]
    content = {
        "routes": [each._asdict() for each in routes],
        "queues": {f"{n}.*": {} for n in names},
    }
    assert document_faults(content, (), 4) == []
    assert len(read) == 3 * len(routes)


def test_routes_that_would_split_a_queue_are_refused(write, tmp_path):
    write(
        "routes:\n- {topic: a, queue: 'x.{key}'}\n- {topic: b, queue: 'x.{header:h}'}\n"
        "queues: {x.*: }\n"
    )
    with pytest.raises(ConfigError, match="different partitions: set hop: always on both"):
        load(tmp_path)
    load(tmp_path, partitions=1)


def test_a_route_must_not_read_the_applications_own_topics(write, tmp_path):
    write("routes: [{topic: ringfaust.dead, queue: again}]\nqueues: {again: }\n")
    with pytest.raises(ConfigError, match="would feed itself"):
        load(tmp_path)
    load(tmp_path, application="second")


@pytest.mark.parametrize("queue", ["departures.{key}", "dep{key}", "{key}", "departures.UA"])
def test_a_route_may_lead_to_a_queue_that_a_pattern_declares(queue):
    QueuesConfig(routes=[RouteConfig(topic="t", queue=queue)], queues={"departures.*": None})


@pytest.mark.parametrize("queue", ["departure.{key}", "departures", "departures.UA.late"])
def test_a_route_to_an_undeclared_queue_is_refused(write, queue):
    path = write(f"routes:\n- topic: t\n  queue: '{queue}'\nqueues: {{departures.*: }}\n")
    with pytest.raises(ConfigError, match=r"did you mean 'departures\.\*'") as caught:
        load_queues(path)
    assert caught.value.faults[0].line == 3


# --- addresses ----------------------------------------------------------------------------------

ADDRESSES = """
routes: [{topic: prices, queue: prices}, {topic: t, queue: "quotes.{key}"}]
addresses:
  prices: {retroactive_count: 3, subscriptions: {ann: {ring_size: 2}, bob: }}
  quotes.*:
settings: {prices: {max_attempts: 3}}
"""


def test_a_route_may_lead_to_an_address(write):
    catalog = load_queues(write(ADDRESSES)).catalog()
    assert catalog.address("prices", {}).retroactive_count == 3
    assert catalog.address("quotes.UA", {}).routing == "multicast"
    assert list(catalog.subscriptions("prices")) == ["ann", "bob"]
    spec = catalog.spec("prices::ann", {})
    assert (spec.ring_size, spec.max_attempts) == (2, 3)


def test_the_addresses_in_the_comments_of_the_shipped_queues_are_valid(write):
    text = (shipped("config") / "queues.yaml").read_text()
    example = re.search(r"(?m)^# (addresses:\n(?:#  .*\n)+)", text)
    assert example is not None
    shown = re.sub(r"(?m)^# ", "", example[1])
    assert load_queues(write(shown)).addresses["prices"].retroactive_count == 10


# --- mistakes ------------------------------------------------------------------------------------

HOSTILE_QUEUES = {
    "not there": (None, "file not found; for examples with comments, see"),
    "empty": ("", "the file is empty"),
    "random bytes": (b"\x00\xff\xfe\x80", "not UTF-8 text"),
    "NUL": ("queues: \x00", "not valid YAML"),
    "a list": ("- 1\n- 2\n", "has no keys"),
    "broken YAML": ("queues: {orders: {ring_size: 1}\n", "line 2: "),
    "code": ("queues: !!python/object/apply:os.system [exit]\n", "line 1: could not determine"),
    "a bomb": ("a: &a [1]\nb: [*a, *a]\n", "line 2: aliases (*name) are not allowed"),
    "deep": ("[" * 1000, "nested too deeply"),
    "huge": ("#" * (FILE_BYTES + 1), "larger than"),
    "a huge number": ("queues: {a: {ring_size: 1" + "0" * 5000 + "}}", "not valid YAML"),
    "octal": ("queues:\n  a: {ring_size: 0100}", "line 2: write a number without : and"),
    "a time": ("queues: {a: {redelivery_delay_ms: 1:30}}", "line 1: write a number"),
    "merged": ("queues: {a: {<<: {ring_size: 1}, ring_size: 2}}", "name must be plain text"),
    "no bool": ("queues: {a: {shared: !!bool many}}", "line 1: not valid YAML: no bool"),
    "no int": ("queues: {a: {ring_size: !!int ''}}", "line 1: not valid YAML: no int"),
    "no time": ("queues: {a: {ring_size: !!timestamp now}}", "1: not valid YAML: no timestamp"),
    "a route": ("routes: {topic: a, queue: a}", "line 1, routes: {'topic': 'a', 'queue': 'a'} is "
        "not allowed: must be a list"),
    "no text": ("1: {}", "line 1, 1: 1 is not allowed: must be text; put it in quotes"),
    "no date": ("queues: {a: {ring_size: 2024-99-99}}", "line 1: not valid YAML: no timestamp"),
    "twice": ("queues:\n  a: {}\n  a: {ring_size: 1}\n", "line 3: 'a' is repeated"),
    "two documents": ("a: 1\n---\nb: 1\n", "line 2: "),
    "a key of lists": ("queues: {[1]: {}}", "line 1: a setting's name must be plain text"),
    "unknown part": ("routs: []\n", "line 1, routs: unknown setting; did you"),
    "unknown field": (
        "queues:\n  orders:\n    ring_sise: 5\n",
        "line 3, queues.orders.ring_sise: unknown setting; did you mean 'ring_size'?",
    ),
    "unknown in route": (
        "routes:\n- topic: a\n  que: b\n",
        "line 3, routes.0.que: unknown setting; did you mean 'queue'?",
    ),
    "ring of none": (
        "queues:\n  orders: {ring_size: 0}\n",
        "line 2, queues.orders.ring_size: 0 is not allowed: must be 1 or more, or -1 for no limit",
    ),
    "text for a number": (
        "settings: {'#': {ring_size: '5'}}",
        "settings.#.ring_size: '5' is not allowed",
    ),
    "yes for a number": (
        "queues: {a: {ring_size: yes}}",
        "queues.a.ring_size: True is not allowed",
    ),
    "no number": (
        "queues: {a: {redelivery_jitter: .nan}}",
        "queues.a.redelivery_jitter: nan is not allowed",
    ),
    "number for a name": (
        "queues: {5: {}}",
        "queues.5: 5 is not allowed: must be text; put it in quotes",
    ),
    "half a word": ("queues: {'a.b*': {}}", "match whole words between dots"),
    "no name": ("queues: {'': {}}", "has 1 to 249 characters"),
    "no topic": ("routes: [{topic: 'a b', queue: a}]\nqueues: {a: }", "is not a valid topic name"),
    "no hop": (
        "routes: [{topic: a, queue: a, hop: no}]\nqueues: {a: }",
        "False is not allowed: must be",
    ),
    "bad template": (
        "routes: [{topic: a, queue: 'a.{kye}'}]\nqueues: {a.*: }",
        "'{kye}' is not a placeholder; did you mean '{key}'?",
    ),
    "half a brace": ("routes: [{topic: a, queue: 'a.{key'}]", "contains an unmatched brace"),
    "address field": (
        "addresses:\n  a:\n    retroactiv_count: 3\n",
        "line 3, addresses.a.retroactiv_count: unknown setting; did you mean",
    ),
    "address value": ("addresses: {a: {retroactive_count: -1}}", "count: -1 is not allowed: must"),
    "routing": ("addresses: {a: {routing: uni}}", "must be 'multicast' or 'anycast'"),
    "anycast": (
        "addresses: {a: {routing: anycast, subscriptions: {x: , y: }}}",
        "addresses.a.subscriptions: an anycast address has one queue",
    ),
    "subscription field": (
        "addresses:\n  a:\n    subscriptions:\n      x: {ring_size: 0}\n",
        "line 4, addresses.a.subscriptions.x.ring_size: 0 is not allowed: must be",
    ),
    "selector that is never true": (
        "addresses:\n  a:\n    subscriptions:\n      x: {selector: 'JMSPriority > 9'}\n",
        "line 4, addresses.a.subscriptions.x.selector: 'JMSPriority > 9' is not allowed: > is",
    ),
    "subscription pattern": (
        "addresses: {a: {subscriptions: {'*': }}}",
        "is not a valid name for a subscription",
    ),
    "a queue of an address": ("queues: {'a::b': }", "declare it as addresses.a.subscriptions.b"),
    "both": ("queues: {a: }\naddresses: {a: }", "line 1, queues.a: is also an address"),
    "patterns": (
        "queues: {" + ", ".join(f"'a{number}.*': " for number in range(1_001)) + "}",
        "have 1,001 names with * or #; they may have at most 1,000",
    ),
    "a topic twice": (
        "routes:\n- {topic: a, queue: a}\n- {topic: a, queue: b}\nqueues: {a: , b: }",
        "line 3, routes.1.topic: topic 'a' has two routes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_QUEUES)
def test_a_mistake_in_the_queues_is_explained(case, write, tmp_path):
    text, words = HOSTILE_QUEUES[case]
    path = tmp_path / "queues.yaml" if text is None else write(text)
    with pytest.raises(ConfigError) as caught:
        load_queues(path)
    text = str(caught.value)
    assert text.startswith(f"{path} cannot be used:")
    assert words in text
    assert len(text) < 600
    assert isinstance(caught.value, RingfaustError)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500", 500), ("-1", -1), ("1.5", 1.5), ("true", True), ("eager", "eager"), ("", ""),
        ("null", "null"), ("2026-01-31", "2026-01-31"), ("2026-13-45", "2026-13-45"),
        ("note = 'see # 5'", "note = 'see # 5'"), ("'a' = kind", "'a' = kind"), ("[a", "[a"),
        ("!!bool x", "!!bool x"), ("[" * 2_000, "[" * 2_000), ("a: b", "a: b"), ("010", "010"),
    ],
)  # fmt: skip
def test_a_setting_on_the_command_line_is_a_number_a_truth_value_or_text(text, value):
    assert (setting_value(text), type(setting_value(text))) == (value, type(value))


HOSTILE_WORKERS = {
    "unknown": ("sesion_timeout_ms: 3\n", "did you mean 'session_timeout_ms'?"),
    "unknown within": ("web:\n  prot: 80\n", "line 2, web.prot: unknown setting; did"),
    "text": ("partitions: '4'", "partitions: '4' is not allowed: must be a valid integer"),
    "none": ("partitions: 0", "partitions: 0 is not allowed: must be greater than or equal to 1"),
    "no copies": ("replication_factor: 0", "use 1 or more, or -1"),
    "a url": ("bootstrap_servers: kafka://a:1", "write host:port"),
    "no port": ("bootstrap_servers: localhost", "write host:port"),
    "no label": ("bootstrap_servers: kafka..svc:9092", "'kafka..svc:9092' is not a broker's"),
    "long label": (f"bootstrap_servers: {'a' * 64}.svc:9092", "is not a broker's address"),
    "wrong port": ("bootstrap_servers: a:1,b:99999", "'b:99999' is not a broker's address"),
    "application": ("application: 'my shop'", "cannot begin a topic's name"),
    "long application": (f"application: {'a' * 240}", "up to 238"),
    "record": ("max_record_bytes: 2000000", "less than or equal to 1900000"),
    "folder": ("data_dir: 5", "must be text"),
    "NUL": ('data_dir: "a\\0b"', "NUL"),
    "NUL in a file": ('web: {token_file: "a\\0b"}', "web.token_file: contains a NUL"),
    "no such user": (
        "security: {protocol: SSL, ca_file: ~nobody-here/ca.pem}",
        "security.ca_file: '~nobody-here/ca.pem' begins with an unknown user",
    ),
    "level": ("log_level: INFO", "must be 'debug', 'info', 'warning' or 'error'"),
    "no user": ("security: {protocol: SASL_SSL}", "needs username, and password_file or password_"),
    "TLS": ("security: {ca_file: a.pem}", "security.ca_file: is not used by protocol PLAINTEXT"),
    "user": ("security: {username: u}", "security.username: is not used by protocol PLAINTEXT"),
    "no key": (
        "security: {protocol: SSL, cert_file: a.pem}", "cert_file and key_file go together",
    ),
    "host": (
        "web: {hosts: 'https://rings.example.com'}",
        "web.hosts: 'https://rings.example.com' is not",
    ),
    "host and port": (
        "web: {hosts: 'a,b:8443'}", "'b:8443' is not the name of a host: write it without port",
    ),
    "proxy": (
        "web: {proxies: 'proxy'}",
        "web.proxies: 'proxy' is neither an address nor a network",
    ),
    "network": (
        "web: {proxies: '10.1.0.1/16'}", "'10.1.0.1/16' is neither an address nor a network",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_WORKERS)
def test_a_mistake_in_the_worker_file_is_explained(case, write):
    text, words = HOSTILE_WORKERS[case]
    with pytest.raises(ConfigError) as caught:
        load_worker(write(text, "worker.yaml"))
    assert words in str(caught.value)
    assert len(caught.value.faults) == 1


def test_all_mistakes_are_reported_at_once(write):
    with pytest.raises(ConfigError) as caught:
        load_queues(write("queues:\n  a: {ring_size: 0}\n  b: {evict: newest}\nroute: []\n"))
    assert [fault.line for fault in caught.value.faults] == [2, 3, 4]


def test_a_mistake_in_an_override_is_attributed_to_the_command_line(write):
    with pytest.raises(ConfigError, match="^command line cannot be used") as caught:
        load_worker(write("bootstrap_servers: a:1", "worker.yaml"), bootstrap_servers="x")
    assert caught.value.faults[0].line == 0


# --- security -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"security: {SECRET}",
        f"security: {{password: {SECRET}}}",
        f"security: {{protocol: SASL_SSL, username: u, password_env: {SECRET}-and-more}}",
        f"security: {{protocol: SASL_SSL, username: u, password_env: [{SECRET}]}}",
        f"security: {{protocol: {SECRET}}}",
        f"security: {{protocol: SASL_SSL, username: u, password: &{SECRET} 1, x: *{SECRET}}}",
        f"security: {{password: '{SECRET}\n",
        f"security: {{password: !!int {SECRET}}}",
        f"web: {{schema_registry: '//rings:{SECRET}@registry'}}",
    ],
)
def test_a_misplaced_password_is_not_shown(text, write):
    with pytest.raises(ConfigError) as caught:
        load_worker(write(text, "worker.yaml"))
    assert SECRET not in str(caught.value)


def test_the_password_comes_from_the_environment_and_is_hidden(monkeypatch):
    security = SecurityConfig(
        protocol="SASL_PLAINTEXT", username="u", password_env="KAFKA_PASSWORD"
    )
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    options = security.client_options()
    assert options["sasl_plain_password"] == SECRET
    assert f"{options['sasl_plain_password']}" == SECRET  # as aiokafka writes it
    assert SECRET not in repr(options) + repr({**options}) + repr(security) + str(security)
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(ConfigError, match="is not set or empty"):
        security.client_options()


def test_plaintext_has_no_options_and_tls_has_an_ssl_context():
    assert SecurityConfig().client_options() == {"security_protocol": "PLAINTEXT"}
    options = SecurityConfig(protocol="SSL").client_options()
    context = options["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_missing_certificate_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"security\.ca_file: .*gone\.pem: No such file"):
        SecurityConfig(protocol="SSL", ca_file=tmp_path / "gone.pem").client_options()
    pem = tmp_path / "bad.pem"
    pem.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"security\.cert_file"):
        SecurityConfig(protocol="SSL", cert_file=pem, key_file=pem).client_options()
    gone = SecurityConfig(protocol="SSL", cert_file=pem, key_file=tmp_path / "gone.pem")
    with pytest.raises(ConfigError, match=r"bad\.pem with key .*gone\.pem: "):
        gone.client_options()
    with pytest.raises(
        ConfigError, match=r"security\.cert_file: .*bad\.pem: has no line -----BEGIN"
    ):
        SecurityConfig(protocol="SSL", cert_file=pem, key_file=pem).java_options("")


def test_a_key_that_java_cannot_read_is_reported_with_a_remedy(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text("-----BEGIN CERTIFICATE-----")
    security = SecurityConfig(protocol="SSL", cert_file=cert, key_file=key)
    with pytest.raises(ConfigError, match=r"security\.key_file: .*key\.pem: No such file"):
        security.java_options("")
    key.write_text("-----BEGIN RSA PRIVATE KEY-----")
    with pytest.raises(ConfigError, match="openssl pkcs8 -topk8"):
        security.java_options("")
