//! Bodies as Go's clients write them.

#![expect(clippy::expect_used, reason = "a failure in a test is the answer")]

use drydock_schema::{json, protobuf};
use serde_json::Value;

/// A protobuf encoder for tests: what Go's generated code writes, field by field.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Message {
    fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> Self {
        varint(field << 3 | 2, &mut self.0);
        varint(bytes.as_ref().len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes.as_ref());
        self
    }

    fn message(self, field: u64, inner: Message) -> Self {
        self.bytes(field, inner.0)
    }

    fn int(mut self, field: u64, value: i64) -> Self {
        varint(field << 3, &mut self.0);
        varint(value as u64, &mut self.0);
        self
    }

    fn entry(self, field: u64, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.message(field, message().bytes(1, key).bytes(2, value))
    }
}

fn message() -> Message {
    Message::default()
}

/// Metadata as Go writes it: every field that is no pointer, empty or not.
fn meta(name: &str, namespace: &str) -> Message {
    message()
        .bytes(1, name)
        .bytes(2, "")
        .bytes(3, namespace)
        .bytes(4, "")
        .bytes(5, "")
        .bytes(6, "")
        .int(7, 0)
        .message(8, message())
}

fn body(api_version: &str, kind: &str, object: Message) -> Vec<u8> {
    let unknown = message()
        .message(1, message().bytes(1, api_version).bytes(2, kind))
        .message(2, object)
        .bytes(3, "")
        .bytes(4, "");
    [protobuf::MAGIC, &unknown.0].concat()
}

#[track_caller]
fn check(api_version: &str, kind: &str, object: Message, expected: &str) {
    let bytes = body(api_version, kind, object);
    let mut expected = json::parse_yaml(expected.as_bytes()).expect("YAML").value;
    expected["apiVersion"] = api_version.into();
    expected["kind"] = kind.into();
    let decoded: Value = protobuf::decode(&bytes).expect("decodes");
    assert_eq!(decoded, expected);
    let meta = protobuf::type_meta(&bytes).expect("an envelope");
    assert_eq!((meta.api_version.as_str(), meta.kind.as_str()), (api_version, kind));
    for length in 0..bytes.len() {
        // Whatever is cut off, the answer is an error or an object, never a panic.
        let _ = protobuf::decode(&bytes[..length]);
    }
}

#[test]
fn a_namespace_has_its_name_and_nothing_empty() {
    let object =
        message().message(1, meta("web", "")).message(2, message()).message(3, message().bytes(1, ""));
    check("v1", "Namespace", object, "{metadata: {name: web}}");
}

#[test]
fn maps_and_bytes() {
    let object =
        message().message(1, meta("c", "ns")).entry(2, "a", "1").entry(2, "b", "").entry(3, "bin", [0, 255]);
    check(
        "v1",
        "ConfigMap",
        object,
        "{metadata: {name: c, namespace: ns}, data: {a: '1', b: ''}, binaryData: {bin: AP8=}}",
    );
    let object = message()
        .message(1, meta("s", "ns"))
        .entry(2, "password", "hello")
        .bytes(3, "Opaque")
        .entry(4, "k", "v")
        .int(5, 1);
    check(
        "v1",
        "Secret",
        object,
        "{metadata: {name: s, namespace: ns}, data: {password: aGVsbG8=}, type: Opaque, stringData: {k: v}, immutable: true}",
    );
}

#[test]
fn what_is_a_pointer_is_kept_when_it_is_zero() {
    let object = message().message(1, meta("sa", "ns")).int(4, 0);
    check(
        "v1",
        "ServiceAccount",
        object,
        "{metadata: {name: sa, namespace: ns}, automountServiceAccountToken: false}",
    );
    let object = message().int(1, 0).message(2, message().bytes(1, "u-1")).bytes(4, "Background");
    check(
        "v1",
        "DeleteOptions",
        object.clone(),
        "{gracePeriodSeconds: 0, preconditions: {uid: u-1}, propagationPolicy: Background}",
    );
    check(
        "apps/v1",
        "DeleteOptions",
        object,
        "{gracePeriodSeconds: 0, preconditions: {uid: u-1}, propagationPolicy: Background}",
    );
}

/// A pod template as a Deployment or a Job carries it.
fn template() -> Message {
    let probe = message()
        .message(
            1,
            message().message(
                2,
                message()
                    .bytes(1, "/ready")
                    .message(2, message().int(1, 1).int(2, 0).bytes(3, "http"))
                    .bytes(3, "")
                    .bytes(4, "HTTP"),
            ),
        )
        .int(2, 0)
        .int(3, 1)
        .int(4, 10)
        .int(5, 1)
        .int(6, 3);
    let port = message().bytes(1, "http").int(2, 0).int(3, 8080).bytes(4, "TCP").bytes(5, "");
    let quantity = |text: &str| message().bytes(1, text).0;
    let env = message().bytes(1, "PASSWORD").bytes(2, "").message(
        3,
        message()
            .message(4, message().message(1, message().bytes(1, "creds")).bytes(2, "password").int(3, 0)),
    );
    let container = message()
        .bytes(1, "app")
        .bytes(2, "app:1")
        .bytes(3, "run")
        .bytes(4, "-v")
        .bytes(5, "")
        .message(6, port)
        .message(7, env)
        .message(8, message().entry(1, "cpu", quantity("100m")).entry(2, "memory", quantity("64Mi")))
        .message(9, message().bytes(1, "data").int(2, 0).bytes(3, "/data").bytes(4, ""))
        .message(11, probe)
        .bytes(13, "")
        .bytes(14, "")
        .int(16, 0)
        .int(17, 0)
        .int(18, 0)
        .bytes(20, "");
    let volume = |name: &str, source: Message| message().bytes(1, name).message(2, source);
    let spec = message()
        .message(1, volume("data", message().message(2, message().bytes(1, ""))))
        .message(1, volume("claim", message().message(10, message().bytes(1, "c").int(2, 0))))
        .message(2, container)
        .bytes(3, "Always")
        .int(4, 0)
        .bytes(6, "")
        .entry(7, "disk", "ssd")
        .bytes(8, "sa")
        .int(11, 0)
        .message(14, message().int(3, 1));
    message().message(1, meta("", "").message(8, message()).entry(11, "app", "web")).message(2, spec)
}

const TEMPLATE: &str = "{metadata: {labels: {app: web}}, spec: {
    volumes: [{name: data, emptyDir: {}}, {name: claim, persistentVolumeClaim: {claimName: c}}],
    containers: [{
        name: app, image: 'app:1', command: [run], args: ['-v'],
        ports: [{name: http, containerPort: 8080, protocol: TCP}],
        env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: creds, key: password, optional: false}}}],
        resources: {limits: {cpu: 100m}, requests: {memory: 64Mi}},
        volumeMounts: [{name: data, mountPath: /data}],
        readinessProbe: {httpGet: {path: /ready, port: http, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3},
    }],
    restartPolicy: Always, terminationGracePeriodSeconds: 0, nodeSelector: {disk: ssd}, serviceAccountName: sa, securityContext: {runAsNonRoot: true}}}";

#[test]
fn a_deployment_with_everything_in_its_pods() {
    let int_or_string = |value: i64| message().int(1, 0).int(2, value).bytes(3, "");
    let spec = message()
        .int(1, 0)
        .message(2, message().entry(1, "app", "web"))
        .message(3, template())
        .message(
            4,
            message().bytes(1, "RollingUpdate").message(
                2,
                message()
                    .message(1, int_or_string(0))
                    .message(2, message().int(1, 1).int(2, 0).bytes(3, "25%")),
            ),
        )
        .int(5, 0)
        .int(7, 0);
    let object =
        message().message(1, meta("web", "ns")).message(2, spec).message(3, message().int(1, 0).int(2, 0));
    check(
        "apps/v1",
        "Deployment",
        object,
        &format!(
            "{{metadata: {{name: web, namespace: ns}}, spec: {{replicas: 0, selector: {{matchLabels: {{app: web}}}}, template: {TEMPLATE}, strategy: {{type: RollingUpdate, rollingUpdate: {{maxUnavailable: 0, maxSurge: 25%}}}}}}}}"
        ),
    );
}

#[test]
fn a_job_and_a_pod() {
    let spec = message().int(7, 0).message(6, template()).int(8, 100);
    let object = message()
        .message(1, meta("j", "ns"))
        .message(2, spec)
        .message(3, message().int(4, 0).int(5, 0).int(6, 0));
    check(
        "batch/v1",
        "Job",
        object,
        &format!(
            "{{metadata: {{name: j, namespace: ns}}, spec: {{backoffLimit: 0, ttlSecondsAfterFinished: 100, template: {TEMPLATE}}}}}"
        ),
    );
    let pod = Message(template().0);
    check("v1", "Pod", pod, TEMPLATE);
}

#[test]
fn times_are_written_out() {
    let time = |seconds: i64, nanoseconds: i64| message().int(1, seconds).int(2, nanoseconds);
    let spec = message()
        .bytes(1, "me")
        .int(2, 15)
        .message(3, time(1_700_000_000, 0))
        .message(4, time(1_700_000_001, 5_000))
        .int(5, 0);
    let object = message().message(1, meta("l", "ns").message(9, time(1_700_000_000, 0))).message(2, spec);
    check(
        "coordination.k8s.io/v1",
        "Lease",
        object,
        "{metadata: {name: l, namespace: ns, deletionTimestamp: '2023-11-14T22:13:20Z'}, spec: {holderIdentity: me, leaseDurationSeconds: 15, acquireTime: '2023-11-14T22:13:20.000000Z', renewTime: '2023-11-14T22:13:21.000005Z', leaseTransitions: 0}}",
    );
}

#[test]
fn reviews_and_subresources() {
    let attributes = message()
        .bytes(1, "ns")
        .bytes(2, "create")
        .bytes(3, "apps")
        .bytes(4, "")
        .bytes(5, "deployments")
        .bytes(6, "")
        .bytes(7, "");
    let object = message()
        .message(1, meta("", ""))
        .message(2, message().message(1, attributes))
        .message(3, message().int(1, 0).bytes(2, ""));
    check(
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
        object,
        "{spec: {resourceAttributes: {namespace: ns, verb: create, group: apps, resource: deployments}}, status: {allowed: false}}",
    );
    let extra = message().bytes(1, "one").bytes(1, "two");
    let spec = message().bytes(3, "ann").bytes(4, "dev").entry(5, "scopes", extra.0).bytes(6, "");
    check(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        message().message(2, spec),
        "{spec: {user: ann, groups: [dev], extra: {scopes: [one, two]}}}",
    );
    let spec = message().bytes(1, "api").int(4, 600);
    let status = message().bytes(1, "").message(2, message());
    check(
        "authentication.k8s.io/v1",
        "TokenRequest",
        message().message(1, meta("", "")).message(2, spec).message(3, status),
        "{spec: {audiences: [api], expirationSeconds: 600}, status: {token: '', expirationTimestamp: null}}",
    );
    let object = message().message(1, meta("p", "ns")).message(2, message().int(1, 5));
    check(
        "policy/v1",
        "Eviction",
        object,
        "{metadata: {name: p, namespace: ns}, deleteOptions: {gracePeriodSeconds: 5}}",
    );
    let object = message()
        .message(1, meta("web", "ns"))
        .message(2, message().int(1, 3))
        .message(3, message().int(1, 0).bytes(2, ""));
    check(
        "autoscaling/v1",
        "Scale",
        object,
        "{metadata: {name: web, namespace: ns}, spec: {replicas: 3}, status: {replicas: 0}}",
    );
}

#[test]
fn raw_json_is_json() {
    let object = message()
        .message(
            1,
            meta("r", "ns").message(
                17,
                message()
                    .bytes(1, "kubectl")
                    .bytes(2, "Update")
                    .bytes(3, "v1")
                    .bytes(6, "FieldsV1")
                    .message(7, message().bytes(1, r#"{"f:data":{}}"#))
                    .bytes(8, ""),
            ),
        )
        .message(2, message().bytes(1, r#"{"spec":{"a":1}}"#))
        .int(3, 7);
    check(
        "apps/v1",
        "ControllerRevision",
        object,
        "{metadata: {name: r, namespace: ns, managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {f:data: {}}}]}, data: {spec: {a: 1}}, revision: 7}",
    );
}

#[test]
fn a_custom_resource_definition_with_its_schema() {
    let string = message().bytes(5, "string");
    let either = message().message(1, string.clone());
    let schema = message().bytes(5, "object").message(
        29,
        message()
            .bytes(1, "spec")
            .message(2, message().bytes(5, "array").message(24, either).message(8, message().bytes(1, "[]"))),
    );
    let version = message().bytes(1, "v1").int(2, 1).int(3, 1).message(4, message().message(1, schema));
    let spec = message()
        .bytes(1, "example.com")
        .message(3, message().bytes(1, "things").bytes(2, "thing").bytes(4, "Thing").bytes(5, "ThingList"))
        .bytes(4, "Namespaced")
        .message(7, version);
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        message().message(1, meta("things.example.com", "")).message(2, spec),
        "{metadata: {name: things.example.com}, spec: {group: example.com, names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: array, default: [], items: {type: string}}}}}}]}}",
    );
}

#[test]
fn what_is_not_a_body_is_refused() {
    for (bytes, expected) in [
        (&b""[..], "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0\x0a\x05", "unexpected EOF"),
        (b"k8s\0\x0b", "proto: illegal wireType 3"),
        (b"k8s\0", "no kind \"\" is registered for version \"\""),
        (
            &body("example.com/v1", "Memcached", message()),
            "no kind \"Memcached\" is registered for version \"example.com/v1\"",
        ),
        (
            &body("v1", "ConfigMap", message().bytes(1, [0x0a, 0x01, 0xff])),
            "proto: field name contains invalid UTF-8",
        ),
        (&body("v1", "ConfigMap", message().int(1, 1)), "proto: wrong wireType for field metadata"),
    ] {
        assert_eq!(protobuf::decode(bytes).map_err(|error| error.to_string()), Err(expected.to_owned()));
    }
}

/// What kubectl 1.32 sent for these commands, one line each: the command and the body in base64.
#[test]
fn bodies_that_kubectl_sends() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let mut text = String::new();
    for line in include_str!("data/kubectl.tsv").lines() {
        let (command, body) = line.split_once('\t').expect("two columns");
        let object = protobuf::decode(&STANDARD.decode(body).expect("base64")).expect("decodes");
        text.push_str(&format!("kubectl {command}\n  {object}\n"));
    }
    insta::assert_snapshot!(text);
}
