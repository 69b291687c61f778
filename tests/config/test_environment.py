"""Every setting of worker.yaml can come from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.config import ConfigError, SecurityConfig, WorkerConfig, load, load_worker, origins
from ringfaust.config.environment import drop_variables, misspelled_variables, variable
from ringfaust.config.sources import WorkerSources

SECRET = "correct horse battery"

EXAMPLES = {
    "application": ("shop", "shop"),
    "bootstrap_servers": ("a:1, b:2", "a:1,b:2"),
    "partitions": ("8", 8),
    "replication_factor": ("-1", -1),
    "data_dir": ("/state", Path("/state")),
    "cache_bytes": ("2000000", 2_000_000),
    "memory_bytes": ("200000000", 200_000_000),
    "batch_records": ("5", 5),
    "clock": ("log", "log"),
    "clock_skew_max_ms": ("500", 500),
    "tick_ms": ("60", 60),
    "on_gap": ("stop", "stop"),
    "max_record_bytes": ("1000", 1000),
    "cloud_events": ("true", True),
    "session_timeout_ms": ("6000", 6000),
    "failover_after_ms": ("2000", 2000),
    "standby": ("0", 0),
    "security.protocol": ("SASL_SSL", "SASL_SSL"),
    "security.ca_file": ("/ca.pem", Path("/ca.pem")),
    "security.cert_file": ("/cert.pem", Path("/cert.pem")),
    "security.key_file": ("/key.pem", Path("/key.pem")),
    "security.sasl_mechanism": ("SCRAM-SHA-512", "SCRAM-SHA-512"),
    "security.username": ("007", "007"),
    "security.password_env": ("KAFKA_PASSWORD", "KAFKA_PASSWORD"),
    "security.password_file": ("/run/secrets/kafka", Path("/run/secrets/kafka")),
    "security.token_function": ("shop.tokens:token", "shop.tokens:token"),
    "web.enabled": ("true", True),
    "web.bind": ("0.0.0.0", "0.0.0.0"),
    "web.port": ("7000", 7000),
    "web.hosts": ("Rings.example.com, worker-1", "rings.example.com,worker-1"),
    "web.proxies": ("10.1.0.0/16,::1", "10.1.0.0/16,::1"),
    "web.public_url": ("HTTPS://Rings.example.com:443/", "https://rings.example.com"),
    "web.token_file": ("/token", Path("/token")),
    "web.read_token_file": ("/read", Path("/read")),
    "web.schema_registry": ("http://registry:8081", "http://registry:8081"),
    "web.oidc.issuer": ("https://login", "https://login"),
    "web.oidc.client_id": ("rings", "rings"),
    "web.oidc.client_secret_file": ("/secret", Path("/secret")),
    "web.oidc.scope": ("openid email", "openid email"),
    "web.oidc.claim": ("email", "email"),
    "web.oidc.change": ("ann@example.com", "ann@example.com"),
    "web.oidc.read": ("*", "*"),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
}
"""A text for each setting, and the value that it becomes."""


def names(kind: type[BaseModel], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += names(inner, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def test_there_is_an_example_for_every_setting() -> None:
    assert list(EXAMPLES) == names(WorkerConfig)


@pytest.mark.parametrize(
    ("mechanism", "alternatives"),
    [
        ("SCRAM-SHA-512", ["password_env", "token_function"]),
        ("SCRAM-SHA-512", ["password_file", "token_function"]),
        ("OAUTHBEARER", ["username", "password_env", "password_file"]),
    ],
)
def test_every_setting_has_a_variable(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, alternatives: list[str]
) -> None:
    left_out = [f"security.{each}" for each in alternatives]
    wanted = {name: each for name, each in EXAMPLES.items() if name not in left_out}
    wanted["security.sasl_mechanism"] = (mechanism, mechanism)
    for name, (text, _) in wanted.items():
        monkeypatch.setenv(variable(name.split(".")), text)
    found = {each.name: each for each in WorkerSources(None, {}).origins()}
    for name, (_, value) in wanted.items():
        assert found[name].value == value, name
        assert found[name].source == variable(name.split("."))
    assert {found[each].source for each in left_out} == {"default"}


@pytest.mark.parametrize("text", ["1" * 5_000, "[" * 100_000])
@pytest.mark.parametrize("name", ["RINGFAUST_PARTITIONS", "RINGFAUST_WEB__PORT"])
def test_a_number_of_any_length_is_refused_with_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    monkeypatch.setenv("RINGFAUST_WEB__ENABLED", "true")
    with pytest.raises(ConfigError) as refused:
        load_worker(None)
    assert [each.field for each in refused.value.faults] == [name]
    assert "must be a valid integer" in str(refused.value)


def test_the_command_line_wins_over_variables_these_over_the_file_and_it_over_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "worker.yaml"
    text = "partitions: 2\ntick_ms: 60\nlog_level: error\ndata_dir: null\n"
    text += "web: {port: 1, bind: '::1'}\n"
    path.write_text(text)
    (tmp_path / "queues.yaml").write_text("queues: {q: }\n")
    monkeypatch.setenv("RINGFAUST_TICK_MS", "70")
    monkeypatch.setenv("RINGFAUST_LOG_LEVEL", "warning")
    monkeypatch.setenv("RINGFAUST_WEB__PORT", "2")
    worker, _ = load(tmp_path, log_level="debug")
    assert (worker.batch_records, worker.partitions, worker.tick_ms) == (16_000, 2, 70)
    assert (worker.log_level, worker.web.port, worker.web.bind) == ("debug", 2, "::1")
    sources = {each.name: each.source for each in origins(tmp_path, log_level="debug")}
    assert sources["batch_records"] == sources["data_dir"] == "default"
    assert sources["partitions"] == "worker.yaml, line 1"
    assert sources["tick_ms"] == "RINGFAUST_TICK_MS"
    assert sources["log_level"] == "command line"
    assert sources["web.port"] == "RINGFAUST_WEB__PORT"
    assert sources["web.bind"] == "worker.yaml, line 5"


def test_a_setting_may_have_its_old_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("partitions: 2\nclock_skew_max: 300\n")
    (tmp_path / "queues.yaml").write_text("queues: {q: }\n")
    for variables, value, source in (
        ({}, 300, "worker.yaml, line 2"),
        ({"RINGFAUST_CLOCK_SKEW_MAX": "400"}, 400, "RINGFAUST_CLOCK_SKEW_MAX"),
        ({"RINGFAUST_CLOCK_SKEW_MAX": "", "RINGFAUST_CLOCK_SKEW_MAX_MS": "500"}, 500,
         "RINGFAUST_CLOCK_SKEW_MAX_MS"),
    ):  # fmt: skip
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        (found,) = (each for each in origins(tmp_path) if each.name == "clock_skew_max_ms")
        assert (found.value, found.source) == (value, source)
    monkeypatch.setenv("RINGFAUST_CLOCK_SKEW_MAX", "600")
    with pytest.raises(ConfigError, match="remove one of them"):
        load_worker(path)
    monkeypatch.delenv("RINGFAUST_CLOCK_SKEW_MAX_MS")
    monkeypatch.setenv("RINGFAUST_CLOCK_SKEW_MAX", "7")
    with pytest.raises(ConfigError, match="RINGFAUST_CLOCK_SKEW_MAX: "):
        load_worker(path)


def test_an_empty_variable_is_not_set_and_null_is_null(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("partitions: 2\nweb: {token_file: /t}\n")
    monkeypatch.setenv("RINGFAUST_PARTITIONS", "")
    monkeypatch.setenv("RINGFAUST_WEB__TOKEN_FILE", "null")
    worker = load_worker(path)
    assert (worker.partitions, worker.web.token_file) == (2, None)


FAULTS = {
    "number": ({"RINGFAUST_PARTITIONS": "many"}, "'many' is not allowed: must be a valid integer"),
    "range": ({"RINGFAUST_TICK_MS": "0"}, "must be greater than or equal to 1"),
    "choice": ({"RINGFAUST_CLOCK": "sun"}, "'sun' is not allowed: must be 'wall' or 'log'"),
    "truth": ({"RINGFAUST_WEB__ENABLED": "perhaps"}, "must be a valid boolean"),
    "unknown": ({"RINGFAUST_WEB__PROT": "1"}, "unknown setting; did you mean 'port'?"),
    "group": ({"RINGFAUST_WEB": "on"}, "must be a mapping"),
    "address": ({"RINGFAUST_BOOTSTRAP_SERVERS": "kafka"}, "write host:port"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_mistake_names_the_variable(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, words = FAULTS[case]
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError) as caught:
        load_worker()
    assert str(caught.value).startswith("the environment cannot be used:")
    (fault,) = caught.value.faults
    assert (fault.field, fault.line) == (next(iter(variables)), 0)
    assert words in fault.text


@pytest.mark.parametrize("name", ["RINGFAUST_PARTITIONS", "RINGFAUST_WEB__PORT"])
def test_a_variable_inside_a_setting_that_has_no_parts_is_a_mistake(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{name}__X", "2")
    with pytest.raises(ConfigError, match=f"{name}: {{'x': '2'}} is not allowed"):
        load_worker()


def test_mistakes_in_file_and_variables_are_reported_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("tick_ms: 0\nsecurity: {username: u}\n")
    monkeypatch.setenv("RINGFAUST_PARTITIONS", "0")
    with pytest.raises(ConfigError) as caught:
        load_worker(path)
    faults = {(fault.field, fault.line) for fault in caught.value.faults}
    assert faults == {("tick_ms", 1), ("security.username", 2), ("RINGFAUST_PARTITIONS", 0)}


def test_a_protocol_without_a_password_is_a_fault_of_the_environment_if_that_sets_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RINGFAUST_SECURITY__PROTOCOL", "SASL_SSL")
    with pytest.raises(ConfigError, match="RINGFAUST_SECURITY: protocol SASL_SSL needs username"):
        load_worker()
    path = tmp_path / "worker.yaml"
    path.write_text("security: {username: u, password_env: P}\n")
    with pytest.raises(ConfigError, match=r"worker\.yaml.*\n.*security\.username: is not used"):
        monkeypatch.setenv("RINGFAUST_SECURITY__PROTOCOL", "PLAINTEXT")
        load_worker(path)
    monkeypatch.setenv("RINGFAUST_SECURITY__PROTOCOL", "SASL_SSL")
    assert load_worker(path).security.username == "u"


def test_a_password_in_the_wrong_variable_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASSWORD_ENV", "PROTOCOL", "PASSWORD", "USERNAME"):
        monkeypatch.setenv(f"RINGFAUST_SECURITY__{name}", SECRET)
    with pytest.raises(ConfigError) as caught:
        load_worker()
    assert SECRET not in str(caught.value)


def test_a_password_can_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    security = SecurityConfig(protocol="SASL_SSL", username="u", password_file=path)
    path.write_text(f"{SECRET}\n")
    options = security.client_options()
    assert options["sasl_plain_password"] == SECRET
    assert SECRET not in repr(options)
    assert SECRET in security.java_options("")["sasl.jaas.config"]
    path.write_text("\n")
    with pytest.raises(ConfigError, match=r"security\.password_file: .*the file is empty"):
        security.client_options()
    path.unlink()
    with pytest.raises(ConfigError, match=r"security\.password_file: .*No such file"):
        security.client_options()


def test_a_password_comes_from_one_place() -> None:
    text = "password_env and password_file exclude each other"
    with pytest.raises(ValueError, match=text):
        SecurityConfig(protocol="SASL_SSL", username="u", password_env="P", password_file=Path("p"))


def test_config_show_says_where_each_value_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "queues.yaml").write_text("queues: {q: }\n")
    (tmp_path / "worker.yaml").write_text("partitions: 2\n")
    monkeypatch.setenv("RINGFAUST_CONFIG", str(tmp_path))
    monkeypatch.setenv("RINGFAUST_WEB__ENABLED", "1")
    monkeypatch.setenv("RINGFAUST_PARTITION", "5")
    monkeypatch.setenv("RINGFAUST_SERVICE_HOST", "10.0.0.1")
    result = CliRunner().invoke(main, ["config", "show", "--bootstrap-servers", "a:1"])
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    shown = {name: " ".join(rest.split()) for name, rest in lines}
    assert shown["bootstrap_servers"] == "command line a:1"
    assert shown["partitions"] == "worker.yaml, line 1 2"
    assert shown["web.enabled"] == "RINGFAUST_WEB__ENABLED true"
    assert shown["security.username"] == "default null"
    assert max(map(len, result.stdout.splitlines()[:5])) <= 80
    warning = "warning: RINGFAUST_PARTITION is not a setting; did you mean RINGFAUST_PARTITIONS?"
    assert result.stderr.splitlines() == [warning]
    checked = CliRunner().invoke(main, ["config", "check"])
    assert "from the environment: RINGFAUST_WEB__ENABLED" in checked.stdout


def test_config_show_never_shows_a_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "queues.yaml").write_text("queues: {q: }\n")
    (tmp_path / "worker.yaml").write_text(
        "security: {protocol: SASL_SSL, username: u, password_env: KAFKA_PASSWORD}\n"
        "web: {schema_registry: 'http://u:a:hunter2@registry:8081'}\n"
    )
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    for more in ([], ["--json"]):
        result = CliRunner().invoke(main, ["config", "show", "--config", str(tmp_path), *more])
        assert result.exit_code == 0
        assert "hunter2" not in result.output
        assert "KAFKA_PASSWORD" in result.stdout
        assert "http://***@registry:8081" in result.stdout
    values = {each["name"]: each["value"] for each in json.loads(result.stdout)}
    assert (values["security.username"], values["web.port"]) == ("u", 6066)
    assert (values["web.enabled"], values["security.ca_file"]) == (False, None)


def test_demos_and_scenarios_drop_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFAUST_BOOTSTRAP_SERVERS", "production:9092")
    monkeypatch.setenv("RINGFAUST_WEB__PROT", "1")
    monkeypatch.setenv("RINGFAUST_CACHE", "/cache")
    drop_variables()
    assert load_worker() == WorkerConfig()
    assert misspelled_variables() == []
