//! Words in a picture: how wide they are, and where they hide nothing.

use super::picture::escape;

/// The height of a line of words.
pub(super) const LINE: f64 = 15.0;

/// A rectangle, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

/// A place in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// About how wide words are, in the widest of the fonts that are usual for 12 px.
pub(super) fn width(text: &str) -> f64 {
    let of = |letter| match letter {
        ' ' | '.' | ',' | ':' | ';' | '\'' | 'i' | 'j' | 'l' | 'I' | '(' | ')' | '/' | '|' => 4.4,
        'f' | 'r' | 't' | '-' => 5.0,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 11.8,
        'A'..='Z' | '=' | '<' | '>' | '±' | '×' | '≤' | '≥' => 9.4,
        _ => 7.6,
    };
    text.chars().map(of).sum()
}

/// Words in lines of at most `limit` pixels, unless one word is wider.
pub(super) fn wrapped(text: &str, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Area {
    fn is_inside(&self, other: &Self) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn has(&self, Spot { x, y }: Spot) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }

    /// Words of this width whose left end is at a place, at half of their height.
    fn of_words(left: f64, middle: f64, width: f64) -> Self {
        let half = LINE / 2.0;
        Self { left, top: middle - half, right: left + width, bottom: middle + half }
    }
}

/// The parts of a field that something is drawn in, so that words keep away from them.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    field: Area,
    spots: Vec<Spot>,
    areas: Vec<Area>,
}

impl Taken {
    pub(super) const fn new(field: Area) -> Self {
        Self { field, spots: Vec::new(), areas: Vec::new() }
    }

    pub(super) fn area(&mut self, area: Area) {
        self.areas.push(area);
    }

    /// Takes the line between two places.
    pub(super) fn line(&mut self, from: Spot, to: Spot) {
        let steps = ((to.x - from.x).hypot(to.y - from.y) / 3.0).ceil().max(1.0) as u32;
        self.spots.extend((0..=steps).map(|it| {
            let share = f64::from(it) / f64::from(steps);
            Spot { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share }
        }));
    }

    /// The first of these places where words of this width hide nothing, which it takes. A place is
    /// their left end, at half their height.
    pub(super) fn place(&mut self, width: f64, places: &[Spot]) -> Option<Spot> {
        let is_free = |it: &&Spot| {
            let area = Area::of_words(it.x - 2.0, it.y, width + 4.0);
            area.is_inside(&self.field)
                && !self.areas.iter().any(|it| it.overlaps(&area))
                && !self.spots.iter().any(|it| area.has(*it))
        };
        let found = *places.iter().find(is_free)?;
        self.area(Area::of_words(found.x, found.y, width));
        Some(found)
    }
}

/// Heights from the top, of which each is at least `LINE` times its number of lines below the one
/// before, as near as can be to where they want to be. They are in order, as the answer is.
pub(super) fn spread(wanted: &[f64], lines: &[usize], top: f64, bottom: f64) -> Vec<f64> {
    let height = |it: usize| lines[it] as f64 * LINE + 3.0;
    let mut tops: Vec<f64> = Vec::new();
    let mut free = top;
    for (index, wanted) in wanted.iter().enumerate() {
        let at = free.max(wanted - height(index) / 2.0);
        tops.push(at);
        free = at + height(index);
    }
    let mut end = bottom;
    for index in (0..tops.len()).rev() {
        tops[index] = tops[index].min(end - height(index)).max(top);
        end = tops[index];
    }
    // More than there is room for: one below the other, beyond the bottom.
    let mut free = top;
    for (index, at) in tops.iter_mut().enumerate() {
        *at = at.max(free);
        free = *at + height(index);
    }
    tops
}

/// Adds words at a place.
pub(super) fn add_text(svg: &mut String, Spot { x, y }: Spot, class: &str, words: &str) {
    let words = escape(words);
    let class = if class.is_empty() { String::new() } else { format!(" class='{class}'") };
    *svg += &format!("<text{class} x='{x:.1}' y='{y:.1}'>{words}</text>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_never_lost() {
        let lines = wrapped("one two  three averyveryverylongword", 60.0);
        assert_eq!(lines, ["one two", "three", "averyveryverylongword"]);
        assert!(wrapped(" ", 60.0).is_empty());
    }

    #[test]
    fn words_keep_away_from_lines_and_from_each_other() {
        let field = Area { left: 0.0, top: 0.0, right: 300.0, bottom: 100.0 };
        let mut taken = Taken::new(field);
        taken.line(Spot { x: 0.0, y: 20.0 }, Spot { x: 300.0, y: 20.0 });
        let places = [20.0, 50.0, 52.0, 80.0, 99.0].map(|y| Spot { x: 10.0, y });
        for free in [Some(50.0), Some(80.0), None] {
            assert_eq!(taken.place(40.0, &places).map(|it| it.y), free);
        }
    }

    #[test]
    fn names_stand_below_each_other_as_near_as_can_be() {
        let tops = spread(&[10.0, 12.0, 99.0], &[1, 2, 1], 0.0, 100.0);
        assert_eq!(tops, [1.0, 19.0, 82.0]);
        let crowded = spread(&[90.0, 95.0, 99.0], &[2, 2, 2], 0.0, 60.0);
        assert_eq!(crowded, [0.0, 33.0, 66.0]);
    }
}
