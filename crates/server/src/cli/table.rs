//! Tables with styled cells.
//!
//! Columns are as wide as their widest cell. Nothing is cut, because ids are meant to be copied.

use anstyle::{AnsiColor, Style};
use posthaste_charts::terminal::{BAD, GOOD, PLAIN, QUIET, STRONG, printable, styled};

/// Style of values that are neither good nor failed yet.
pub const WAITING: Style = AnsiColor::Yellow.on_default();

const GAP: &str = "  ";

/// One cell: text and style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    style: Style,
    is_number: bool,
}

impl Cell {
    /// Creates a cell with this text. Line breaks and control characters are replaced.
    pub fn new(text: &str) -> Cell {
        Cell {
            text: printable(text),
            style: style_of(text),
            is_number: false,
        }
    }

    /// Creates a cell with a number, which is aligned right.
    pub fn number(text: &str) -> Cell {
        Cell {
            is_number: true,
            ..Cell::new(text)
        }
    }

    /// Creates an empty cell.
    pub fn empty() -> Cell {
        Cell {
            text: "-".to_owned(),
            style: QUIET,
            is_number: false,
        }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }

    /// Returns the cell's styled text.
    pub fn styled(&self) -> String {
        if self.style == PLAIN {
            self.text.clone()
        } else {
            styled(self.style, &self.text)
        }
    }
}

/// Returns the style of a status word of the API.
pub fn style_of(word: &str) -> Style {
    match word {
        "succeeded" | "enabled" | "passing" | "done" | "healthy" => GOOD,
        "failed" | "disabled" | "tripped" | "alert" => BAD,
        "retrying" | "held" | "paused" | "probing" | "warning" => WAITING,
        "cancelled" => QUIET,
        _ => PLAIN,
    }
}

/// Renders rows in columns under their headings. A column of numbers is aligned right.
pub fn table(heads: &[&str], rows: &[Vec<Cell>]) -> String {
    let column = |index: usize| rows.iter().filter_map(move |row| row.get(index));
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(index, head)| {
            let widest = column(index).map(Cell::width).max().unwrap_or(0);
            widest.max(head.chars().count())
        })
        .collect();
    let numeric: Vec<bool> = (0..heads.len())
        .map(|index| column(index).any(|cell| cell.is_number))
        .collect();
    let heads: Vec<Cell> = heads
        .iter()
        .map(|head| Cell {
            style: STRONG,
            ..Cell::new(head)
        })
        .collect();
    std::iter::once(&heads)
        .chain(rows)
        .map(|row| line(row, &widths, &numeric))
        .collect()
}

fn line(row: &[Cell], widths: &[usize], numeric: &[bool]) -> String {
    let mut out = String::new();
    // Spaces are written only before the next cell, so that no line ends with spaces.
    let mut pending_spaces = 0;
    for (index, cell) in row.iter().enumerate() {
        let spare = widths
            .get(index)
            .map_or(0, |width| width.saturating_sub(cell.width()));
        let align_right = numeric.get(index).copied().unwrap_or(false);
        let (before, after) = if align_right { (spare, 0) } else { (0, spare) };
        out.push_str(&" ".repeat(pending_spaces + before));
        out.push_str(&cell.styled());
        pending_spaces = after + GAP.len();
    }
    out.push('\n');
    out
}

/// Renders names and values, one pair per line.
pub fn pairs(pairs: &[(String, Cell)]) -> String {
    let width = pairs
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    pairs
        .iter()
        .map(|(name, cell)| {
            let name = styled(QUIET, &format!("{:<width$}", printable(name)));
            format!("{name}{GAP}{}\n", cell.styled())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_styles() {
        let rows = vec![
            vec![Cell::new("dlv_1"), Cell::new("failed"), Cell::number("12")],
            vec![Cell::new("dlv_22"), Cell::empty(), Cell::number("3")],
        ];
        let text = anstream::adapter::strip_str(&table(&["ID", "STATUS", "N"], &rows)).to_string();
        assert_eq!(
            text,
            "ID      STATUS   N\ndlv_1   failed  12\ndlv_22  -        3\n"
        );
    }

    #[test]
    fn control_characters_are_replaced() {
        let rows = vec![vec![Cell::new("a\n\u{1b}[2Jb")]];
        assert!(table(&["X"], &rows).ends_with("a\u{fffd}\u{fffd}[2Jb\n"));
    }
}
