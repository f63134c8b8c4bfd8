//! The mistakes in a rule that the schema alone shows.
//!
//! A walk over the expression that follows `self` through the schema: fields that do not exist,
//! names that nobody declared, a result that is not what is wanted. Whatever it can't follow it
//! takes as right.

use std::collections::HashMap;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};

use super::values::escape;
use crate::{Schema, Type};

/// What a rule is compiled for.
pub(super) struct Scope<'a> {
    pub(super) schema: &'a Schema,
    pub(super) root: bool,
    pub(super) optional_old_self: bool,
}

/// What an expression must give.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Bool,
    String,
}

/// Why an expression is refused.
#[derive(Debug)]
pub(super) enum Failure {
    /// The compiler's text.
    Text(String),
    /// The result is of another type.
    Result,
}

impl Failure {
    pub(super) fn describe(self, compiler: &str, result: &str) -> String {
        match self {
            Self::Text(text) => format!("{compiler}{text}"),
            Self::Result => result.to_owned(),
        }
    }
}

/// As much of a type as can be told.
#[derive(Clone, Copy)]
enum Known<'a> {
    Node(&'a Schema),
    Root(&'a Schema),
    Bool,
    Int,
    String,
    Other,
}

/// Names that stand for types and for families of functions.
const DECLARED: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
    "optional",
    "optional_type",
    "sets",
    "ip",
    "cidr",
    "format",
    "jsonpatch",
    "google",
    "strings",
    "lists",
    "semver",
    "quantity",
    "url",
    "authorizer",
];

/// Every function that a rule may call, by its last name.
const FUNCTIONS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "bool",
    "byte",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "date",
    "datetime",
    "distinct",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "equivalent",
    "escapeKey",
    "family",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "intersects",
    "ip",
    "isCIDR",
    "isCanonical",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "labelValue",
    "last",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "named",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "patch",
    "prefixLength",
    "qualifiedName",
    "quantity",
    "quote",
    "range",
    "replace",
    "reverse",
    "semver",
    "sign",
    "size",
    "slice",
    "sort",
    "sortBy",
    "split",
    "startsWith",
    "string",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "unwrap",
    "unwrapOpt",
    "upperAscii",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
];

struct Walk<'a, 's> {
    source: &'s str,
    variables: HashMap<String, Vec<Known<'a>>>,
    errors: Vec<String>,
}

pub(super) fn check(
    source: &str,
    expression: &IdedExpr,
    scope: &Scope<'_>,
    wanted: Wanted,
) -> Result<(), Failure> {
    let own = if scope.root || scope.schema.embedded_resource {
        Known::Root(scope.schema)
    } else {
        Known::Node(scope.schema)
    };
    let old = if scope.optional_old_self { Known::Other } else { own };
    let variables = HashMap::from([("self".to_owned(), vec![own]), ("oldSelf".to_owned(), vec![old])]);
    let mut walk = Walk { source, variables, errors: Vec::new() };
    let result = walk.expression(expression);
    if !walk.errors.is_empty() {
        return Err(Failure::Text(walk.errors.join("\n")));
    }
    match (result.scalar(), wanted) {
        (Known::Other, _) | (Known::Bool, Wanted::Bool) | (Known::String, Wanted::String) => Ok(()),
        _ => Err(Failure::Result),
    }
}

impl<'a> Known<'a> {
    /// What a node of the schema is to CEL.
    fn scalar(self) -> Known<'a> {
        match self {
            Known::Node(schema) => match schema.kind {
                Type::Boolean => Known::Bool,
                Type::Integer => Known::Int,
                Type::String if schema.format.is_none() => Known::String,
                Type::Object | Type::Array | Type::String | Type::Number => self,
                Type::Any | Type::IntOrString => Known::Other,
            },
            other => other,
        }
    }

    /// The name of a type that only compares with itself.
    fn name(self) -> Option<&'static str> {
        match self {
            Known::Bool => Some("bool"),
            Known::Int => Some("int"),
            Known::String => Some("string"),
            Known::Node(_) | Known::Root(_) | Known::Other => None,
        }
    }

    fn items(self) -> Known<'a> {
        match self {
            Known::Node(schema) => schema.items.as_deref().map_or(Known::Other, Known::Node),
            _ => Known::Other,
        }
    }

    /// What indexing or a map's field gives.
    fn values(self) -> Known<'a> {
        match self {
            Known::Node(schema) => {
                schema.additional.as_deref().or(schema.items.as_deref()).map_or(Known::Other, Known::Node)
            }
            _ => Known::Other,
        }
    }
}

impl<'a> Walk<'a, '_> {
    fn complain(&mut self, needle: &str, message: &str) {
        // A whole word: `.size` does not stand in `.sizes`.
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let ends = |start: usize| {
            !self.source.get(start + needle.len()..).is_some_and(|rest| rest.starts_with(is_word))
        };
        let offset = self.source.match_indices(needle).map(|(start, _)| start).find(|start| ends(*start));
        self.complain_at(offset.unwrap_or(0), message);
    }

    fn complain_at(&mut self, offset: usize, message: &str) {
        let before = self.source.get(..offset).unwrap_or_default();
        let line_number = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let line = self.source.lines().nth(line_number - 1).unwrap_or_default();
        let dots = ".".repeat(column);
        self.errors
            .push(format!("ERROR: <input>:{line_number}:{}: {message}\n | {line}\n | {dots}^", column + 1));
    }

    fn expression(&mut self, expression: &IdedExpr) -> Known<'a> {
        match &expression.expr {
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => {
                // `has(self.x.y)` asks for a field as well: it must be one that can be there.
                let operand = self.expression(&select.operand);
                let found = self.field(operand, &select.field);
                if select.test { Known::Bool } else { found }
            }
            Expr::Call(call) => {
                let target = call.target.as_deref().map(|target| self.expression(target));
                let arguments: Vec<Known<'a>> =
                    call.args.iter().map(|argument| self.expression(argument)).collect();
                self.call(&call.func_name, &arguments);
                result(&call.func_name, target, &arguments)
            }
            Expr::Comprehension(fold) => {
                let range = self.expression(&fold.iter_range);
                self.expression(&fold.accu_init);
                let is_map = matches!(range, Known::Node(schema) if schema.kind == Type::Object);
                let (first, second) = match (&fold.iter_var2, is_map) {
                    (None, true) => (Known::String, Known::Other),
                    (None, false) => (range.items(), Known::Other),
                    (Some(_), true) => (Known::String, range.values()),
                    (Some(_), false) => (Known::Int, range.items()),
                };
                let mut bound = vec![(fold.iter_var.clone(), first), (fold.accu_var.clone(), Known::Other)];
                bound.extend(fold.iter_var2.clone().map(|name| (name, second)));
                for (name, known) in &bound {
                    self.variables.entry(name.clone()).or_default().push(*known);
                }
                self.expression(&fold.loop_cond);
                self.expression(&fold.loop_step);
                self.expression(&fold.result);
                for (name, _) in &bound {
                    self.variables.entry(name.clone()).or_default().pop();
                }
                Known::Other
            }
            Expr::List(list) => {
                list.elements.iter().for_each(|element| {
                    self.expression(element);
                });
                Known::Other
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key);
                        self.expression(&entry.value);
                    }
                }
                Known::Other
            }
            Expr::Literal(LiteralValue::Boolean(_)) => Known::Bool,
            Expr::Literal(LiteralValue::Int(_)) => Known::Int,
            Expr::Literal(LiteralValue::String(_)) => Known::String,
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Known::Other,
        }
    }

    fn name(&mut self, name: &str) -> Known<'a> {
        if let Some(known) = self.variables.get(name).and_then(|stack| stack.last()) {
            return *known;
        }
        if !DECLARED.contains(&name) && !name.starts_with('@') && !name.starts_with("__") {
            self.complain(name, &format!("undeclared reference to '{name}' (in container '')"));
        }
        Known::Other
    }

    /// A function that there is none of, or an operator whose sides can't be compared.
    fn call(&mut self, function: &str, arguments: &[Known<'a>]) {
        let local = function.rsplit('.').next().unwrap_or(function);
        let is_name = local.chars().all(|c| c.is_ascii_alphanumeric());
        if is_name && !FUNCTIONS.contains(&local) {
            // The compiler points at the parenthesis.
            let offset = self.source.find(&format!("{local}(")).map_or(0, |start| start + local.len());
            self.complain_at(offset, &format!("undeclared reference to '{local}' (in container '')"));
        }
        let operator = match function {
            "_<_" | "_<=_" | "_>_" | "_>=_" | "_==_" | "_!=_" => function.trim_matches('_'),
            _ => return,
        };
        if let [left, right] = arguments
            && let (Some(left), Some(right)) = (left.scalar().name(), right.scalar().name())
            && left != right
        {
            let message =
                format!("found no matching overload for '{function}' applied to '({left}, {right})'");
            let offset = self.source.find(&format!(" {operator} ")).map_or(0, |start| start + 1);
            self.complain_at(offset, &message);
        }
    }

    fn field(&mut self, operand: Known<'a>, field: &str) -> Known<'a> {
        let (schema, is_root) = match operand {
            Known::Root(schema) => (schema, true),
            Known::Node(schema) if schema.kind == Type::Object => (schema, schema.embedded_resource),
            _ => return Known::Other,
        };
        if let Some(values) = &schema.additional {
            return Known::Node(values);
        }
        if let Some((_, found)) = schema.properties.iter().find(|(name, _)| escape(name) == field) {
            return Known::Node(found);
        }
        if is_root && ["apiVersion", "kind", "metadata"].contains(&field) {
            return Known::Other;
        }
        self.complain(&format!(".{field}"), &format!("undefined field '{field}'"));
        Known::Other
    }
}

/// What a call gives, where its name says it.
fn result<'a>(function: &str, target: Option<Known<'a>>, arguments: &[Known<'a>]) -> Known<'a> {
    match function {
        "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" | "_in_"
        | "matches" | "startsWith" | "endsWith" => Known::Bool,
        "size" => Known::Int,
        "_[_]" => arguments.first().copied().unwrap_or(Known::Other).values(),
        "string" if target.is_none() => Known::String,
        _ => Known::Other,
    }
}

/// A rule's `fieldPath` (`.spec.size`, `['spec']`) as a field error writes it, if it leads anywhere.
pub(crate) fn field_path(path: &str, schema: &Schema) -> Option<String> {
    let (mut rest, mut node, mut text) = (path, schema, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            let (inner, tail) = quoted.split_once("']")?;
            name = inner.replace("\\'", "'").replace("\\\\", "\\");
            rest = tail;
        } else {
            let dotted = rest.strip_prefix('.')?;
            let end = dotted.find(['.', '[', ']']).unwrap_or(dotted.len());
            let (inner, tail) = dotted.split_at(end);
            if inner.is_empty() {
                return None;
            }
            name = inner.to_owned();
            rest = tail;
        }
        if node.properties.is_empty() {
            node = node.additional.as_deref()?;
            text.push_str(&format!("[{name}]"));
        } else {
            node = node.properties.get(&name)?;
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(&name);
        }
    }
    (!text.is_empty()).then_some(text)
}
