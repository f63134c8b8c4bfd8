//! The names that a server has for itself, as they are tried on the schema and on a running cluster: a list of its
//! own, so that a name which the schema forgets is missed.

/// In any case of their letters.
pub const DATABASES: [&str; 9] = [
    "mysql",
    "MySQL",
    "MYSQL",
    "information_schema",
    "performance_schema",
    "Performance_Schema",
    "sys",
    "ballast",
    "lost+found",
];

/// Of both servers.
pub const USERS: [&str; 7] =
    ["root", "mysql.sys", "mysql.session", "mysql.infoschema", "mariadb.sys", "event_scheduler", "ballast"];
