//! The vocabulary of decisions: Operator, View, Question, Plan, Step, Condition.
