use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// As MariaDB's tool writes it, with what is hard to read in it.
const DUMP: &str = r#"/*M!999999\- enable the sandbox mode */
-- MariaDB dump 10.19  Distrib 11.8.6-MariaDB, for debian-linux-gnu (x86_64)
--
-- Host: localhost    Database: shop
/*!40101 SET NAMES utf8mb4 */;

--
-- Current Database: `shop`
--

CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop`;

USE `shop`;
CREATE TABLE `empty` (
  `id` int(11) NOT NULL COMMENT 'INSERT INTO `empty` VALUES (1);'
);
CREATE TABLE `a ``b` (
  `id` int(11) NOT NULL,
  `twice` int(11) GENERATED ALWAYS AS (`id` * 2) STORED
);
INSERT INTO `a ``b` (`id`, `VALUES (`) VALUES
(1,'it\'s (one), \\'),
(2,'two'';--'),
(3,NULL),
(-4.5e10,0xDEADBEEF);
INSERT INTO `a ``b` (`id`, `VALUES (`) VALUES
(5,'/*!50001 \\\' */');
CREATE TABLE `was` (
  `id` int(11) NOT NULL
) WITH SYSTEM VERSIONING;
/*M!101100 SET @@session.system_versioning_insert_history=1 */;
INSERT INTO `was` (`id`, row_start, row_end) VALUES (1,'2026-01-01 00:00:00.000001','2038-01-19 03:14:07.999999');
/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER t;
DELIMITER ;;
CREATE PROCEDURE `p`()
BEGIN
INSERT INTO `empty` VALUES (1);
-- a comment that is part of the body
END ;;
DELIMITER ;

--
-- Dumping events for database 'shop'
--
DELIMITER ;;
/*!50106 CREATE*/ /*!50106 EVENT `e` ON SCHEDULE AT '2030-01-01' DO SELECT 1 */ ;;
DELIMITER ;

--
-- Dumping routines for database 'shop'
--
/*!50001 VIEW `v` AS select 1 AS `1` */;

-- Dump completed on 2026-01-01  0:00:00
"#;

fn read_in(pieces: &[&[u8]]) -> Result<Contents, DigestError> {
    let mut reading = Reading::new();
    for piece in pieces {
        reading.feed(piece)?;
    }
    reading.finish()
}

fn read(dump: &str) -> Result<Contents, DigestError> {
    read_in(&[dump.as_bytes()])
}

fn dump_of(table: &str, inserts: &[Vec<String>]) -> String {
    let mut dump = format!("USE `d`;\nCREATE TABLE `{table}` (\n);\n");
    for rows in inserts.iter().filter(|rows| !rows.is_empty()) {
        dump.push_str(&format!("INSERT INTO `{table}` VALUES {};\n", rows.join(",")));
    }
    dump + "-- Dump completed\n"
}

fn rows(contents: &Contents) -> Vec<(&str, &str, u64)> {
    contents.tables.iter().map(|table| (&*table.database, &*table.name, table.rows)).collect()
}

#[test]
fn the_tables_of_a_dump_and_their_rows_are_found_whatever_stands_in_them() {
    let contents = read(DUMP).unwrap();
    assert_eq!(rows(&contents), [("shop", "empty", 0), ("shop", "a `b", 5), ("shop", "was", 1)]);
    assert_eq!(contents.bytes, DUMP.len() as u64);
}

#[test]
fn a_dump_says_which_tool_wrote_it() {
    let line = DUMP.lines().nth(1).unwrap();
    for (head, expected) in [
        (line, "MariaDB dump 10.19  Distrib 11.8.6-MariaDB"),
        ("-- MariaDB dump 10.19-11.8.6-MariaDB, for Linux (aarch64)", "MariaDB dump 10.19-11.8.6-MariaDB"),
        ("-- MySQL dump 10.13  Distrib 9.7.4, for Linux (x86_64)", "MySQL dump 10.13  Distrib 9.7.4"),
        ("-- Host: localhost", ""),
    ] {
        assert_eq!(read(&DUMP.replacen(line, head, 1)).unwrap().tool, expected);
    }
}

#[test]
fn a_dump_reads_the_same_wherever_it_is_cut() {
    let whole = read(DUMP).unwrap();
    for cut in 0..DUMP.len() {
        let (one, two) = DUMP.as_bytes().split_at(cut);
        assert_eq!(read_in(&[one, two]).as_ref(), Ok(&whole), "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = DUMP.as_bytes().chunks(1).collect();
    assert_eq!(read_in(&bytes), Ok(whole));
}

#[test]
fn a_dump_that_stops_before_its_end_is_none() {
    let last = DUMP.find("-- Dump completed").unwrap();
    for end in 0..=last {
        assert!(read(&DUMP[..end]).is_err(), "{}", &DUMP[..end]);
    }
    for more in ["INSERT INTO `a` VALUES (1);\n", "SELECT 1;\n", "DELIMITER ;;\n", "INSERT INTO `a"] {
        assert!(read(&format!("{DUMP}{more}")).is_err(), "{more}");
    }
    assert_eq!(read(&format!("{DUMP}\n\n")).unwrap().tables, read(DUMP).unwrap().tables);
}

#[test]
fn what_no_dump_has_is_refused_where_it_is() {
    for (strange, expected) in [
        ("INSERT INTO `t` SELECT 1;\n", "without VALUES"),
        ("INSERT INTO `t` VALUES 1;\n", "without rows"),
        ("INSERT INTO `t` VALUES (1) ON DUPLICATE KEY UPDATE a=1;\n", "no row between"),
        ("INSERT INTO `t` VALUES (1); SELECT 1;\n", "behind an INSERT"),
    ] {
        let error = read(&format!("{strange}{DUMP}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn comments_of_a_dump_are_no_part_of_it_and_everything_else_is() {
    let contents = read(DUMP).unwrap();
    let changed = |from: &str, to: &str| {
        assert!(DUMP.contains(from), "{from}");
        read(&DUMP.replacen(from, to, 1)).unwrap()
    };
    assert_eq!(changed("Host: localhost", "Host: 10.1.2.3!").tables, contents.tables);
    assert_eq!(changed("Host: localhost", "Host: 10.1.2.3!").definitions, contents.definitions);
    assert_ne!(changed("TRIGGER t", "TRIGGER u").definitions, contents.definitions);
    assert_ne!(changed("part of the body", "path of the body").definitions, contents.definitions);
    assert_ne!(changed("`id` * 2", "`id` * 3").definitions, contents.definitions);
    assert_ne!(changed("VIEW `v`", "VIEW `w`").definitions, contents.definitions);
    let event = changed("2030-01-01", "2031-01-01");
    assert_eq!(event.definitions, contents.definitions);
    assert_ne!(event.events, contents.events);
}

/// A row as the tools write it: numbers, text with everything that is escaped, blobs.
fn row() -> impl Strategy<Value = String> {
    let text = vec(any::<char>(), 0..30).prop_map(|letters| {
        let mut text = String::from("'");
        for letter in letters {
            match letter {
                '\'' | '"' | '\\' => text.extend(['\\', letter]),
                '\n' => text.push_str("\\n"),
                '\0' => text.push_str("\\0"),
                letter => text.push(letter),
            }
        }
        text + "'"
    });
    let tricky = "'(\\\\\\\\|\\\\'|''|[(),;])*'";
    let value = prop_oneof!["-?[0-9]{1,9}", "NULL", "0x[0-9A-F]{0,40}", text, tricky];
    vec(value, 1..6).prop_map(|values| format!("({})", values.join(",")))
}

proptest! {
    #[test]
    fn the_order_of_rows_and_how_they_are_inserted_changes_no_digest(
        rows in vec(row(), 1..20),
        order in any::<u64>(),
        per_insert in 1usize..8,
        cut in 1usize..64,
    ) {
        let one = read(&dump_of("t", std::slice::from_ref(&rows))).unwrap();
        prop_assert_eq!(one.tables[0].rows, rows.len() as u64);
        let mut shuffled = rows;
        shuffled.sort_by_key(|row| XxHash3_128::oneshot_with_seed(order, row.as_bytes()));
        let inserts: Vec<Vec<String>> = shuffled.chunks(per_insert).map(<[String]>::to_vec).collect();
        let dump = dump_of("t", &inserts);
        let pieces: Vec<&[u8]> = dump.as_bytes().chunks(cut).collect();
        let other = read_in(&pieces).unwrap();
        prop_assert_eq!(one.tables, other.tables);
        prop_assert_eq!(one.definitions, other.definitions);
    }

    #[test]
    fn another_byte_in_a_row_makes_another_digest(rows in vec(row(), 1..6), at in any::<usize>(), to in "[a-z0-9]") {
        let dump = dump_of("t", std::slice::from_ref(&rows));
        let text = rows.concat();
        let places: Vec<usize> =
            text.char_indices().filter(|(_, letter)| letter.is_ascii_alphanumeric()).map(|(at, _)| at).collect();
        prop_assume!(!places.is_empty());
        let place = places[at % places.len()];
        prop_assume!(!text[place..].starts_with(&to));
        let joined = rows.join(",");
        let joined_place = place + rows.iter().scan(0, |end, row| { *end += row.len(); Some(*end) })
            .filter(|end| *end <= place).count();
        let mut changed = joined.clone();
        changed.replace_range(joined_place..=joined_place, &to);
        prop_assert_ne!(
            read(&dump).unwrap().tables,
            read(&dump.replacen(&joined, &changed, 1)).unwrap().tables
        );
    }

    #[test]
    fn a_row_more_or_less_makes_another_digest(rows in vec(row(), 1..10), at in any::<usize>()) {
        let all = read(&dump_of("t", std::slice::from_ref(&rows))).unwrap();
        let mut fewer = rows.clone();
        fewer.remove(at % rows.len());
        prop_assert_ne!(&all.tables, &read(&dump_of("t", &[fewer])).unwrap().tables);
        let mut more = rows.clone();
        more.push(rows[at % rows.len()].clone());
        prop_assert_ne!(&all.tables, &read(&dump_of("t", &[more])).unwrap().tables);
    }

    #[test]
    fn no_bytes_at_all_make_it_fall_over(bytes in vec(any::<u8>(), 0..300), cut in 1usize..20) {
        let mut dump = b"INSERT INTO `t` VALUES (1,'".to_vec();
        dump.extend(&bytes);
        for stream in [&bytes, &dump] {
            let pieces: Vec<&[u8]> = stream.chunks(cut).collect();
            let cut = read_in(&pieces);
            let whole = read_in(&[stream]);
            prop_assert_eq!(cut.is_ok(), whole.is_ok());
        }
    }
}
