//! CEL rules: `x-kubernetes-validations`.
//!
//! A [`Rule`] is compiled once, when the custom resource definition is read, and lives in the
//! [`Schema`](crate::Schema) node it belongs to. Where rules are evaluated, and when transition
//! rules are skipped or failures ratcheted, is decided in `validate`.
//!
//! **Deliberately absent:** Kubernetes' cost estimate, and in the type checker whatever concerns the
//! types of libraries (`quantity`, `url`, `ip`), so that a rule that compiles here can still be
//! refused by a real API server. The other way round, comprehensions of
//! two variables are refused here, and lists that are sets are compared in order.

mod depth;
mod overloads;
mod tokens;
mod types;
pub(crate) use types::field_path;
mod values;

use std::sync::{Arc, LazyLock};

use chrono::{SecondsFormat, Timelike as _};
use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, IdedExpr, ResolveResult, Value as Cel,
        extractors::This,
        objects::{OptionalValue, ValueType},
        parser::Parser,
    },
};
use serde_json::Value;

use crate::{FieldErrorKind, Schema};

/// The longest message that a `messageExpression` may give.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("dyn", |value: Cel| -> ResolveResult { Ok(value) });
    context.add_function("size", size);
    context.add_function("string", string);
    context.add_function("type", |value: Cel| -> ResolveResult { Ok(type_value(value.type_of())) });
    for (name, kind) in [
        ("bool", ValueType::Bool),
        ("bytes", ValueType::Bytes),
        ("double", ValueType::Float),
        ("int", ValueType::Int),
        ("list", ValueType::List),
        ("map", ValueType::Map),
        ("null_type", ValueType::Null),
        ("string", ValueType::String),
        ("uint", ValueType::UInt),
    ] {
        context.add_variable_from_value(name, type_value(kind));
    }
    context
});

/// A type as a value: nothing but other types is equal to it.
fn type_value(kind: ValueType) -> Cel {
    Cel::List(Arc::new(vec![Cel::String(Arc::new(format!("type {kind}")))]))
}

/// Strings are measured in characters.
fn size(This(value): This<Cel>) -> ResolveResult {
    let size = match &value {
        Cel::String(text) => text.chars().count(),
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.len(),
        Cel::Map(fields) => fields.map.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Cel::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

/// Times and lengths of time are written as Go writes them: with no digit more than needed, and in
/// seconds.
fn string(This(value): This<Cel>) -> ResolveResult {
    let text = match value {
        Cel::String(text) => return Ok(Cel::String(text)),
        Cel::Bool(flag) => flag.to_string(),
        Cel::Int(number) => number.to_string(),
        Cel::UInt(number) => number.to_string(),
        Cel::Float(number) => number.to_string(),
        Cel::Timestamp(time) => {
            let (text, part) = (time.to_rfc3339_opts(SecondsFormat::Secs, true), time.nanosecond());
            let (second, zone) = text.split_at("0000-00-00T00:00:00".len());
            let part = format!(".{part:09}");
            format!("{second}{}{zone}", part.trim_end_matches('0').trim_end_matches('.'))
        }
        Cel::Duration(length) => format!("{}s", seconds(length.num_nanoseconds().unwrap_or(i64::MAX))),
        Cel::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| {
            ExecutionError::function_error("string", "invalid UTF-8 in bytes, cannot convert to string")
        })?,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Cel::String(Arc::new(text)))
}

/// Billionths of a second in seconds, with no digit more than needed.
fn seconds(nanos: i64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (nanos.unsigned_abs() / SECOND, nanos.unsigned_abs() % SECOND);
    format!("{sign}{whole}.{rest:09}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// One compiled rule.
#[derive(Debug)]
pub struct Rule {
    /// The expression.
    pub rule: String,
    /// What a person reads when the rule fails.
    pub message: Option<String>,
    /// What kind of error a failure is.
    pub reason: FieldErrorKind,
    /// The field that is blamed, below the node of the rule: `size`, `limits[cpu]`.
    pub field_path: Option<String>,
    /// The rule is evaluated on creation too, with an empty `oldSelf`.
    pub optional_old_self: bool,
    /// The rule compares with the previous state.
    pub uses_old_self: bool,
    program: IdedExpr,
    message_program: Option<IdedExpr>,
}

/// Why a rule does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// The rule itself.
    Rule(String),
    /// Its `messageExpression`.
    MessageExpression(String),
}

/// What came of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Holds,
    /// The rule is false; this is the message.
    Fails(String),
    /// The rule could not be evaluated; this is why.
    Errs(String),
}

/// `self` and `oldSelf` of the rules of one node.
pub(crate) struct Subject {
    new: Cel,
    old: Option<Cel>,
}

impl Subject {
    pub(crate) fn new(schema: &Schema, new: &Value, old: Option<&Value>, root: bool) -> Self {
        let convert = |value| if root { values::root(schema, value) } else { values::convert(schema, value) };
        Self { new: convert(new), old: old.map(convert) }
    }
}

impl Rule {
    /// Compiles an entry of `x-kubernetes-validations`; its shape has been checked already.
    pub(crate) fn compile(definition: &Value, schema: &Schema, root: bool) -> Result<Self, RuleError> {
        let text = |key: &str| definition.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let rule = text("rule").unwrap_or_default().to_owned();
        let optional_old_self = definition.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
        let scope = types::Scope { schema, root, optional_old_self };
        let program = compile(&rule, &scope, types::Wanted::Bool).map_err(|failure| {
            RuleError::Rule(
                failure.describe("compilation failed: ", "cel expression must evaluate to a bool"),
            )
        })?;
        let message_program = text("messageExpression")
            .map(|expression| compile(expression, &scope, types::Wanted::String))
            .transpose()
            .map_err(|failure| {
                RuleError::MessageExpression(failure.describe(
                    "messageExpression compilation failed: ",
                    "messageExpression must evaluate to a string",
                ))
            })?;
        Ok(Self {
            uses_old_self: program.references().has_variable("oldSelf"),
            message: text("message").map(|message| message.trim().to_owned()),
            reason: match text("reason") {
                Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
                Some("FieldValueRequired") => FieldErrorKind::Required,
                Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
                _ => FieldErrorKind::Invalid,
            },
            field_path: text("fieldPath").and_then(|path| types::field_path(path, schema)),
            optional_old_self,
            rule,
            program,
            message_program,
        })
    }

    /// The message, or the rule where there is none.
    fn label(&self) -> &str {
        self.message.as_deref().unwrap_or_else(|| self.rule.trim())
    }

    pub(crate) fn evaluate(&self, subject: &Subject) -> Outcome {
        let mut context = FUNCTIONS.new_inner_scope();
        context.add_variable_from_value("self", subject.new.clone());
        if self.optional_old_self {
            let old = subject.old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
        } else if let Some(old) = &subject.old {
            context.add_variable_from_value("oldSelf", old.clone());
        }
        match Cel::resolve(&self.program, &context) {
            Ok(Cel::Bool(true)) => Outcome::Holds,
            Ok(_) => Outcome::Fails(self.failure_message(&context)),
            Err(error) => Outcome::Errs(match describe(&error) {
                Some(text) => format!("{text} evaluating rule: {}", self.label()),
                None => format!(
                    "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    self.label()
                ),
            }),
        }
    }

    /// An expression that gives no usable message gives way to the plain message.
    fn failure_message(&self, context: &Context<'_>) -> String {
        if let Some(program) = &self.message_program
            && let Ok(Cel::String(text)) = Cel::resolve(program, context)
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n') {
                return text.to_owned();
            }
        }
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.rule.trim()))
    }
}

/// The error in the words of Kubernetes; none for a call that no function takes.
fn describe(error: &ExecutionError) -> Option<String> {
    Some(match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {index:?}"),
        ExecutionError::UndeclaredReference(name) => format!("no such attribute(s): {name}"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => return None,
    })
}

fn compile(
    source: &str,
    scope: &types::Scope<'_>,
    wanted: types::Wanted,
) -> Result<IdedExpr, types::Failure> {
    if !depth::is_bearable(source) {
        return Err(types::Failure::Text(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: 250".into(),
        ));
    }
    let program = Parser::new()
        .enable_optional_syntax(true)
        .parse(source)
        .map_err(|error| types::Failure::Text(error.to_string().replace("\n| ", "\n | ")))?;
    types::check(source, &program, scope, wanted)?;
    Ok(program)
}
