//! Tables for people.

/// A table with a title.
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(title: &str, columns: [&str; N]) -> Self {
        Self { title: title.to_owned(), rows: vec![columns.map(str::to_owned).to_vec()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Prints it, as Markdown.
    pub fn print(&self) {
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        println!("\n{}\n", self.title);
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> =
                row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column))).collect();
            println!("| {} |", cells.join(" | "));
            if number == 0 {
                let rule: Vec<String> = (0..row.len()).map(|column| "-".repeat(width(column))).collect();
                println!("| {} |", rule.join(" | "));
            }
        }
    }
}

/// The middle of several measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
