//! The mistakes in a rule that the schema alone shows.
//!
//! A walk over the expression that follows `self` through the schema: fields that do not exist,
//! names that nobody declared, functions of other types, patterns that are none, a result that is not
//! what is wanted. Whatever it can't follow it takes as right.

use std::{collections::HashMap, fmt};

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr,
};

use super::{
    overloads::{self, DECLARED, FUNCTIONS},
    tokens::Tokens,
    values::escape,
};
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
#[derive(Debug, Clone)]
pub(super) enum Known<'a> {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Null,
    List(Box<Known<'a>>),
    Map(Box<Known<'a>>, Box<Known<'a>>),
    /// An object with fields; the flag says that it has a type and metadata too.
    Object(&'a Schema, bool),
    /// Anything.
    Other,
}

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Null => f.write_str("null"),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(keys, values) => write!(f, "map({keys}, {values})"),
            Self::Object(..) => f.write_str("object"),
            Self::Other => f.write_str("dyn"),
        }
    }
}

impl<'a> Known<'a> {
    /// What a node of the schema is to CEL.
    fn of(schema: &'a Schema, root: bool) -> Self {
        if root || schema.embedded_resource {
            return Self::Object(schema, true);
        }
        let below = |schema: &'a Schema| Box::new(Self::of(schema, false));
        match schema.kind {
            Type::Boolean => Self::Bool,
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            Type::String => match schema.format.as_deref() {
                Some("byte") => Self::Bytes,
                Some("date" | "date-time" | "datetime") => Self::Timestamp,
                Some("duration") => Self::Duration,
                _ => Self::String,
            },
            Type::Array => Self::List(schema.items.as_deref().map_or_else(|| Box::new(Self::Other), below)),
            Type::Object => match schema.additional.as_deref() {
                Some(values) => Self::Map(Box::new(Self::String), below(values)),
                None => Self::Object(schema, false),
            },
            Type::Any | Type::IntOrString => Self::Other,
        }
    }

    /// Its values can be sorted.
    pub(super) fn has_order(&self) -> bool {
        !matches!(self, Self::Null | Self::List(_) | Self::Map(..) | Self::Object(..))
    }

    /// The type of what is of both types, if anything is.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Other, known) | (known, Self::Other) => Some(known.clone()),
            (Self::List(a), Self::List(b)) => Some(Self::List(Box::new(a.meet(b)?))),
            (Self::Map(a, x), Self::Map(b, y)) => Some(Self::Map(Box::new(a.meet(b)?), Box::new(x.meet(y)?))),
            (Self::Null, known @ (Self::Object(..) | Self::Timestamp | Self::Duration))
            | (known @ (Self::Object(..) | Self::Timestamp | Self::Duration), Self::Null) => {
                Some(known.clone())
            }
            // Objects of two places in a schema may be alike.
            (Self::Object(..), Self::Object(..)) => Some(self.clone()),
            (a, b) => (a.to_string() == b.to_string()).then(|| a.clone()),
        }
    }
}

/// A part of an expression: its type, and where it stands.
struct Part<'a> {
    known: Known<'a>,
    offset: usize,
}

struct Walk<'a, 's> {
    tokens: Tokens<'s>,
    variables: HashMap<String, Vec<Known<'a>>>,
    /// Complaints with their places.
    errors: Vec<(usize, String)>,
}

pub(super) fn check(
    source: &str,
    expression: &IdedExpr,
    scope: &Scope<'_>,
    wanted: Wanted,
) -> Result<(), Failure> {
    let own = Known::of(scope.schema, scope.root);
    let old = if scope.optional_old_self { Known::Other } else { own.clone() };
    let variables = HashMap::from([("self".to_owned(), vec![own]), ("oldSelf".to_owned(), vec![old])]);
    let mut walk = Walk { tokens: Tokens::new(source), variables, errors: Vec::new() };
    let result = walk.expression(expression);
    if !walk.errors.is_empty() {
        walk.errors.sort_by_key(|(offset, _)| *offset);
        let texts = walk.errors.iter().map(|(offset, message)| walk.tokens.complaint(*offset, message));
        return Err(Failure::Text(texts.collect::<Vec<_>>().join("\n")));
    }
    match (result.known, wanted) {
        (Known::Other, _) | (Known::Bool, Wanted::Bool) | (Known::String, Wanted::String) => Ok(()),
        _ => Err(Failure::Result),
    }
}

impl<'a> Walk<'a, '_> {
    fn complain(&mut self, offset: usize, message: impl Into<String>) {
        self.errors.push((offset, message.into()));
    }

    fn expression(&mut self, expression: &IdedExpr) -> Part<'a> {
        match &expression.expr {
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::List(list) => {
                let offset = self.tokens.peek();
                let items: Vec<_> = list.elements.iter().map(|item| self.expression(item).known).collect();
                Part { known: Known::List(Box::new(common(items))), offset }
            }
            Expr::Map(map) => {
                let offset = self.tokens.peek();
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.expression(&entry.key).known);
                        values.push(self.expression(&entry.value).known);
                    }
                }
                Part { known: Known::Map(Box::new(common(keys)), Box::new(common(values))), offset }
            }
            Expr::Literal(literal) => {
                let offset = self.tokens.seek_literal().unwrap_or_default();
                Part { known: of_literal(literal), offset }
            }
            Expr::Struct(_) | Expr::Unspecified => Part { known: Known::Other, offset: self.tokens.peek() },
        }
    }

    fn variable(&self, name: &str) -> Option<Known<'a>> {
        self.variables.get(name).and_then(|stack| stack.last()).cloned()
    }

    fn name(&mut self, name: &str) -> Part<'a> {
        if is_made_up(name) {
            return Part { known: self.variable(name).unwrap_or(Known::Other), offset: self.tokens.peek() };
        }
        let offset = self.tokens.seek(name).unwrap_or_default();
        if let Some(known) = self.variable(name) {
            return Part { known, offset };
        }
        if !DECLARED.contains(&name) {
            self.complain(offset, format!("undeclared reference to '{name}' (in container '')"));
        }
        Part { known: Known::Other, offset }
    }

    /// `has(self.x.y)` asks for a field as well: it must be one that can be there.
    fn select(&mut self, select: &SelectExpr) -> Part<'a> {
        let operand = self.expression(&select.operand).known;
        let offset = self.tokens.seek(".").unwrap_or_default();
        self.tokens.seek(&select.field);
        let found = self.field(&operand, &select.field, offset);
        Part { known: if select.test { Known::Bool } else { found }, offset }
    }

    fn field(&mut self, operand: &Known<'a>, field: &str, offset: usize) -> Known<'a> {
        let (schema, is_root) = match operand {
            Known::Object(schema, is_root) => (*schema, *is_root),
            Known::Map(_, values) => return (**values).clone(),
            Known::Other => return Known::Other,
            other => {
                self.complain(offset, format!("type '{other}' does not support field selection"));
                return Known::Other;
            }
        };
        if let Some((_, found)) = schema.properties.iter().find(|(name, _)| escape(name) == field) {
            return Known::of(found, false);
        }
        if is_root && ["apiVersion", "kind", "metadata"].contains(&field) {
            return Known::Other;
        }
        self.complain(offset, format!("undefined field '{field}'"));
        Known::Other
    }

    fn call(&mut self, call: &CallExpr) -> Part<'a> {
        let function = call.func_name.as_str();
        if let Some((operator, prefix)) = operator(function) {
            return self.operation(call, operator, prefix);
        }
        // `ip.isCanonical(…)`: what stands before the dot is a family of functions, not a value.
        let family = matches!(call.target.as_deref(), Some(IdedExpr { expr: Expr::Ident(name), .. })
            if DECLARED.contains(&name.as_str()) && self.variable(name).is_none());
        let target = call.target.as_deref().map(|target| self.expression(target).known);
        let local = function.rsplit('.').next().unwrap_or(function);
        let is_name = local.chars().all(|c| c.is_ascii_alphanumeric());
        if is_name {
            self.tokens.seek(local);
        }
        // The compiler points at the parenthesis.
        let offset = if is_name { self.tokens.seek("(").unwrap_or_default() } else { self.tokens.peek() };
        let arguments: Vec<Part<'a>> = call.args.iter().map(|argument| self.expression(argument)).collect();
        let mut known = Known::Other;
        if is_name && !FUNCTIONS.contains(&local) {
            self.complain(offset, format!("undeclared reference to '{local}' (in container '')"));
        } else if !family {
            known = self.resolve(function, target.as_ref(), &arguments, offset);
            self.pattern(call, &arguments);
        }
        Part { known, offset }
    }

    fn operation(&mut self, call: &CallExpr, operator: &str, prefix: bool) -> Part<'a> {
        // What macros are made of does not stand in the text.
        let made_up = |argument: &IdedExpr| matches!(&argument.expr, Expr::Ident(name) if is_made_up(name));
        let written = !call.args.iter().any(made_up);
        let mut offset = self.tokens.peek();
        if prefix && written {
            offset = self.tokens.seek(operator).unwrap_or_default();
        }
        let mut arguments = Vec::new();
        for (index, argument) in call.args.iter().enumerate() {
            if index == 1 && !prefix && written {
                offset = self.tokens.seek(operator).unwrap_or_default();
            }
            arguments.push(self.expression(argument));
        }
        if !matches!(operator, "&&" | "||") {
            return Part { known: self.resolve(&call.func_name, None, &arguments, offset), offset };
        }
        for argument in &arguments {
            if !matches!(argument.known, Known::Bool | Known::Other) {
                let message = format!("expected type 'bool' but found '{}'", argument.known);
                self.complain(argument.offset, message);
            }
        }
        Part { known: Known::Bool, offset }
    }

    fn resolve(
        &mut self,
        function: &str,
        target: Option<&Known<'a>>,
        arguments: &[Part<'a>],
        offset: usize,
    ) -> Known<'a> {
        let types: Vec<Known<'a>> = arguments.iter().map(|part| part.known.clone()).collect();
        if let Ok(known) = overloads::resolve(function, target, &types) {
            return known;
        }
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        let target = target.map_or_else(String::new, |target| format!("{target}."));
        let applied = format!("{target}({})", types.join(", "));
        self.complain(offset, format!("found no matching overload for '{function}' applied to '{applied}'"));
        Known::Other
    }

    /// A pattern that is written out can be tried at once.
    fn pattern(&mut self, call: &CallExpr, arguments: &[Part<'a>]) {
        if call.func_name == "matches"
            && let (Some(argument), Some(part)) = (call.args.last(), arguments.last())
            && let Expr::Literal(LiteralValue::String(pattern)) = &argument.expr
            && regex_syntax::parse(pattern.inner()).is_err()
        {
            self.complain(part.offset, "invalid matches argument");
        }
    }

    fn fold(&mut self, fold: &ComprehensionExpr) -> Part<'a> {
        let range = self.expression(&fold.iter_range);
        let (first, second) = match (&range.known, &fold.iter_var2) {
            (Known::List(items), None) => ((**items).clone(), Known::Other),
            (Known::List(items), Some(_)) => (Known::Int, (**items).clone()),
            (Known::Map(keys, _), None) => ((**keys).clone(), Known::Other),
            (Known::Map(keys, values), Some(_)) => ((**keys).clone(), (**values).clone()),
            (Known::Other, _) => (Known::Other, Known::Other),
            (other, _) => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.complain(range.offset, message);
                (Known::Other, Known::Other)
            }
        };
        let offset = self.tokens.seek("(").unwrap_or_default();
        self.tokens.seek(&fold.iter_var);
        let start = match &fold.accu_init.expr {
            // What a macro begins with stands nowhere in the text.
            Expr::Literal(literal) => of_literal(literal),
            Expr::List(list) if list.elements.is_empty() => Known::List(Box::new(Known::Other)),
            _ => self.expression(&fold.accu_init).known,
        };
        let mut bound = vec![(fold.iter_var.clone(), first), (fold.accu_var.clone(), start)];
        bound.extend(fold.iter_var2.clone().map(|name| (name, second)));
        for (name, known) in &bound {
            self.variables.entry(name.clone()).or_default().push(known.clone());
        }
        let step = self.expression(&fold.loop_step).known;
        if let Some(last) = self.variables.get_mut(&fold.accu_var).and_then(|stack| stack.last_mut()) {
            *last = step;
        }
        // Nothing that a person wrote stands in the condition, nor, but for a variable, in the result.
        let known = match &fold.result.expr {
            Expr::Ident(name) => self.variable(name).unwrap_or(Known::Other),
            Expr::Call(call) if operator(&call.func_name).is_some() => Known::Bool,
            _ => Known::Other,
        };
        for (name, _) in &bound {
            self.variables.entry(name.clone()).or_default().pop();
        }
        Part { known, offset }
    }
}

fn of_literal<'a>(literal: &LiteralValue) -> Known<'a> {
    match literal {
        LiteralValue::Boolean(_) => Known::Bool,
        LiteralValue::Int(_) => Known::Int,
        LiteralValue::UInt(_) => Known::Uint,
        LiteralValue::Double(_) => Known::Double,
        LiteralValue::String(_) => Known::String,
        LiteralValue::Bytes(_) => Known::Bytes,
        LiteralValue::Null => Known::Null,
    }
}

/// A name that no person can write: what a macro keeps its result in.
fn is_made_up(name: &str) -> bool {
    name.starts_with(['@', '#']) || name == "__result__"
}

/// The type of all of them, or anything.
fn common(mut all: Vec<Known<'_>>) -> Known<'_> {
    let Some(first) = all.pop() else { return Known::Other };
    all.iter().try_fold(first, |found, next| found.meet(next)).unwrap_or(Known::Other)
}

/// How an operator is written, and whether it stands before what it is applied to.
fn operator(function: &str) -> Option<(&str, bool)> {
    match function {
        "!_" | "-_" => function.strip_suffix('_').map(|operator| (operator, true)),
        "_?_:_" => Some(("?", false)),
        "_[_]" => Some(("[", false)),
        "@in" => Some(("in", false)),
        "_[?_]" | "_?._" => None,
        _ => {
            let operator = function.strip_prefix('_')?.strip_suffix('_')?;
            operator.chars().all(|c| c.is_ascii_punctuation() && c != '_').then_some((operator, false))
        }
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
