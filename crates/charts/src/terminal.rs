//! Text layout for a terminal.
//!
//! Styles are ANSI sequences. A caller that does not print to a terminal strips them. Every line fits the
//! requested width.

use anstyle::{AnsiColor, Style};

/// Width if the width of the terminal is unknown.
pub const DEFAULT_WIDTH: usize = 80;
/// Maximum width. Longer lines are hard to read.
pub const MAX_WIDTH: usize = 100;
/// Minimum width. Tables do not fit below it.
pub const MIN_WIDTH: usize = 60;

/// Style of headings.
pub const STRONG: Style = Style::new().bold();
/// Style of secondary text.
pub const QUIET: Style = Style::new().dimmed();
/// Style of successes.
pub const GOOD: Style = AnsiColor::Cyan.on_default();
/// Style of failures.
pub const BAD: Style = AnsiColor::Red.on_default();
/// No style.
pub const PLAIN: Style = Style::new();

/// Returns the layout width for the value of the `COLUMNS` variable.
pub fn width(columns: Option<&str>) -> usize {
    columns
        .and_then(|columns| columns.trim().parse::<usize>().ok())
        .filter(|columns| *columns > 0)
        .unwrap_or(DEFAULT_WIDTH)
        .clamp(MIN_WIDTH, MAX_WIDTH)
}

/// Returns text in a style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Wraps text between words to lines of at most `width` characters.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// Replaces control characters, so that the text cannot move the cursor or break the line.
pub fn printable(text: &str) -> String {
    let replaced = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(replaced).collect()
}

/// Formats a table: the first column left-aligned, all others right-aligned. The gaps between columns shrink
/// if the table would be too wide.
pub fn table(heads: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let gaps = widths.len().saturating_sub(1).max(1);
    let spare = width.saturating_sub(widths.iter().sum());
    let gap = " ".repeat((spare / gaps).clamp(1, 3));
    let mut out = styled(STRONG, &aligned(&widths, &gap, heads.iter().copied()));
    for row in rows {
        out.push('\n');
        out.push_str(&aligned(&widths, &gap, row.iter().map(String::as_str)));
    }
    out.push('\n');
    out
}

fn aligned<'a>(widths: &[usize], gap: &str, cells: impl Iterator<Item = &'a str>) -> String {
    let padded = widths.iter().zip(cells).enumerate();
    let cells: Vec<String> = padded
        .map(|(column, (width, cell))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        })
        .collect();
    cells.join(gap).trim_end().to_owned()
}

/// A grid of characters, each with its style.
#[derive(Clone, Debug)]
pub struct Canvas {
    width: usize,
    rows: Vec<Vec<(char, Style)>>,
}

impl Canvas {
    /// Creates an empty grid.
    pub fn new(width: usize, height: usize) -> Canvas {
        Canvas {
            width,
            rows: vec![vec![(' ', PLAIN); width]; height],
        }
    }

    /// Returns its width.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Draws one character. Positions outside the grid are ignored.
    pub fn put(&mut self, column: usize, row: usize, character: char, style: Style) {
        if let Some(cell) = self.rows.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = (character, style);
        }
    }

    /// Draws text that begins at this cell.
    pub fn text(&mut self, column: usize, row: usize, text: &str, style: Style) {
        for (index, character) in text.chars().enumerate() {
            self.put(column + index, row, character, style);
        }
    }

    /// Draws text centred at this cell. Text that would leave the grid is moved to the side.
    pub fn centred(&mut self, column: usize, row: usize, text: &str, style: Style) {
        self.text(self.start_of(column, text), row, text, style);
    }

    /// Returns true if text centred at this cell would not touch anything drawn.
    pub fn has_space_for(&self, column: usize, row: usize, text: &str) -> bool {
        let start = self.start_of(column, text);
        let end = start + text.chars().count();
        (start.saturating_sub(1)..=end)
            .all(|column| column >= self.width || self.is_blank(column, row))
    }

    fn start_of(&self, column: usize, text: &str) -> usize {
        let length = text.chars().count();
        let last_start = self.width.saturating_sub(length);
        column.saturating_sub(length / 2).min(last_start)
    }

    /// Draws text that ends before this cell.
    pub fn right_aligned(&mut self, column: usize, row: usize, text: &str, style: Style) {
        let start = column.saturating_sub(text.chars().count());
        self.text(start, row, text, style);
    }

    /// Returns true if nothing was drawn in this cell.
    pub fn is_blank(&self, column: usize, row: usize) -> bool {
        let cell = self.rows.get(row).and_then(|row| row.get(column));
        cell.is_some_and(|(character, _)| *character == ' ')
    }

    /// Returns the grid as lines, without trailing blanks.
    pub fn write(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let blanks = row.iter().rev().take_while(|cell| cell.0 == ' ').count();
            let drawn = &row[..row.len() - blanks];
            for run in drawn.chunk_by(|a, b| a.1 == b.1) {
                let text: String = run.iter().map(|cell| cell.0).collect();
                out.push_str(&styled(run[0].1, &text));
            }
            out.push('\n');
        }
        out
    }
}

/// Returns the block character with these quarters filled: upper left, upper right, lower left, lower right.
pub fn quarters(filled: [bool; 4]) -> char {
    const BLOCKS: [char; 16] = [
        ' ', '▘', '▝', '▀', '▖', '▌', '▞', '▛', '▗', '▚', '▐', '▜', '▄', '▙', '▟', '█',
    ];
    BLOCKS[bits(filled)]
}

/// Returns the Braille character with the same quarters as [`quarters`].
pub fn dotted_quarters(filled: [bool; 4]) -> char {
    const DOTS: [char; 16] = [
        ' ', '⠃', '⠘', '⠛', '⡄', '⡇', '⡜', '⡟', '⢠', '⢣', '⢸', '⢻', '⣤', '⣧', '⣼', '⣿',
    ];
    DOTS[bits(filled)]
}

fn bits(filled: [bool; 4]) -> usize {
    let bits = filled.iter().enumerate();
    bits.fold(0, |index, (bit, on)| index | usize::from(*on) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_bounded() {
        assert_eq!(width(None), 80);
        assert_eq!(width(Some("90")), 90);
        assert_eq!(width(Some("300")), MAX_WIDTH);
        assert_eq!(width(Some("3")), MIN_WIDTH);
        for nonsense in ["", "0", "-4", "wide"] {
            assert_eq!(width(Some(nonsense)), 80, "{nonsense}");
        }
    }

    #[test]
    fn text_wraps_between_words() {
        assert_eq!(wrapped("one two  three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("unbreakable", 4), "unbreakable");
        assert_eq!(wrapped("", 4), "");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "1,000".to_owned()],
            vec!["±bc".to_owned(), "7".to_owned()],
        ];
        let text = |width| {
            let text = table(&["k", "n"], &rows, width);
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(text(80), "k         n\na     1,000\n±bc       7\n");
        assert_eq!(text(10), "k        n\na    1,000\n±bc      7\n");
        assert_eq!(text(2), "k       n\na   1,000\n±bc     7\n");
    }

    #[test]
    fn drawing_outside_the_canvas_is_ignored() {
        let mut canvas = Canvas::new(5, 2);
        canvas.text(3, 0, "abcdef", PLAIN);
        canvas.put(0, 9, 'x', PLAIN);
        canvas.centred(5, 1, "end", GOOD);
        assert!(canvas.is_blank(0, 0) && !canvas.is_blank(4, 0));
        let text = canvas.write();
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "   ab\n  end\n"
        );
        assert!(text.contains("\u{1b}["), "{text:?}");
    }

    #[test]
    fn quarters_are_at_their_positions() {
        assert_eq!(quarters([false; 4]), ' ');
        assert_eq!(quarters([true; 4]), '█');
        assert_eq!(quarters([true, false, true, false]), '▌');
        assert_eq!(quarters([false, false, false, true]), '▗');
        assert_eq!(quarters([false, true, false, false]), '▝');
        assert_eq!(quarters([true, true, false, false]), '▀');
    }

    #[test]
    fn dots_are_at_the_positions_of_the_quarters() {
        // Each quarter has two dots; Unicode numbers them from the upper left.
        let dots: [u32; 4] = [0x03, 0x18, 0x44, 0xa0];
        for number in 1..16_u32 {
            let filled = [0, 1, 2, 3].map(|bit| number >> bit & 1 == 1);
            let raised = dots.iter().zip(filled).filter(|(_, on)| *on);
            let code = 0x2800 + raised.map(|(dots, _)| dots).sum::<u32>();
            assert_eq!(u32::from(dotted_quarters(filled)), code, "{filled:?}");
        }
        assert_eq!(dotted_quarters([false; 4]), ' ');
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[2J\nb"), "a\u{fffd}[2J\u{fffd}b");
    }
}
