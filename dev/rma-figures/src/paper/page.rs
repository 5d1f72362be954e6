//! All figures on one page, as HTML with everything inside, and as Markdown with its pictures
//! beside it. Equal points give equal bytes.

use rma_bench::{drawing::escape, page};

use super::{
    claims::{Claim, Verdict},
    differences::Differences,
    figure::About,
    judged::{Holding, Judged, faults, shown},
    points::{Number, Table},
};

const TITLE: &str = "The papers' evaluations, reproduced";

/// The section of figures that no paper has, and the words before them.
const BEYOND: [&str; 2] = [
    "Beyond the papers",
    "Figures that no paper has. What is said of them, and the claims, are this project's own; so no paper's number \
     stands beside them.",
];

/// The words before all figures.
const PREFACE: [&str; 3] = [
    "1RMA (SIGCOMM 2020), StaR (ICNP 2021) and Efficient RDMA Communication Protocols, figure by figure: the \
     paper's claim, the value that the code of this repository has, and a computed verdict.",
    "agrees: all claims hold; agrees in shape: those of order and direction do; differs, explained: a reviewed \
     reason stands beside each claim that does not hold. What a fitted constant decides counts for nothing.",
    "Most absolute values of the channels' paper are in its plots only, which have no axes that can be read: of it \
     there are orders and ratios.",
];

/// All figures of a page.
pub(crate) struct Page<'a> {
    pub(crate) figures: Vec<Judged<'a>>,
    pub(crate) differences: &'a Differences,
}

/// A row of a table, its cells in the page's own language.
type Row = Vec<String>;

impl Page<'_> {
    /// The whole of `index.html`.
    pub(crate) fn html(&self) -> String {
        let mut body = String::new();
        for line in PREFACE.map(str::to_owned).iter().chain(&self.counts()) {
            body += &format!("<p>{}</p>\n", escape(line));
        }
        for fault in faults(self.differences, &self.figures) {
            body += &format!("<p class='bad'>{}</p>\n", escape(&fault));
        }
        body += "<table>\n<tr><th>figure<th>verdict<th>the paper says<th>paper<th>here<th>\n";
        for figure in &self.figures {
            body += &self.html_rows(figure);
        }
        body += "</table>\n";
        for (index, figure) in self.figures.iter().enumerate() {
            if self.begins_beyond(index) {
                let [title, words] = BEYOND;
                body += &format!("<h1 id='beyond'>{title}</h1>\n<p>{}</p>\n", escape(words));
            }
            body += &self.html_figure(figure);
        }
        page::page(TITLE, &body)
    }

    /// Whether the figure with this index is the first one that no paper has.
    fn begins_beyond(&self, index: usize) -> bool {
        let is_beyond = |it: &Judged<'_>| it.about.id.starts_with("beyond-");
        self.figures.iter().position(is_beyond) == Some(index)
    }

    /// How many figures have which verdict, and which are missing.
    fn counts(&self) -> [String; 2] {
        use Verdict::{Agrees, AgreesInShape, Differs, DiffersExplained, None};
        let of = |verdict| {
            let count = self.figures.iter().filter(|it| it.verdict == verdict).count();
            (count > 0).then(|| format!("{count} {}", verdict.words()))
        };
        let all = [Agrees, AgreesInShape, DiffersExplained, Differs, None];
        let all: Vec<String> = all.into_iter().filter_map(of).collect();
        let missing = self.figures.iter().filter(|it| it.points.is_none());
        let missing: Vec<&str> = missing.map(|it| it.about.id).collect();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("Not here: {}.", missing.join(", ")),
        };
        [format!("{} figures: {}.", self.figures.len(), all.join(", ")), missing]
    }

    fn html_rows(&self, figure: &Judged<'_>) -> String {
        let (id, title) = (figure.about.id, escape(figure.about.title));
        let (rows, says) = (figure.claims.len() + 1, escape(figure.about.says));
        let verdict = figure.verdict.words();
        let class = if figure.verdict == Verdict::Differs { " class='bad'" } else { "" };
        let note = figure.note.as_ref().map_or_else(String::new, |it| escape(it));
        let mut html = format!(
            "<tr><td rowspan='{rows}'><a href='#{id}'>{id}</a><br>{title}\
             <td rowspan='{rows}'{class}>{verdict}<td colspan='3'>{says}<td>{note}\n"
        );
        for claim in &figure.claims {
            let holding = figure.holding(claim, self.differences);
            let class = if matches!(holding, Holding::No) { " class='bad'" } else { "" };
            let [says, paper, value] =
                [&claim.says, &claim.paper, &shown(claim.value)].map(|it| escape(it));
            let words = escape(&holding.words());
            html += &format!("<tr><td>{says}<td>{paper}<td>{value}<td{class}>{words}\n");
        }
        html
    }

    fn html_figure(&self, figure: &Judged<'_>) -> String {
        let (id, title) = (figure.about.id, escape(figure.about.title));
        let mut html = format!("<h2 id='{id}'>{id}: {title}</h2>\n");
        html += &format!("<p>{}</p>\n", escape(figure.about.says));
        if let Some(note) = &figure.note {
            html += &format!("<p class='bad'>{}</p>\n", escape(note));
        }
        match figure.picture().and_then(|it| it.draw()) {
            Some(svg) => html += &format!("<figure>\n{svg}</figure>\n"),
            None => {
                html += &figure
                    .points
                    .as_ref()
                    .map_or_else(String::new, |it| format!("<p>{}</p>\n", escape(&it.line())))
            }
        }
        for Listed { title, heads, rows } in self.tables(figure) {
            html += &format!("<p>{}</p>\n<table>\n<tr>", escape(&title));
            heads.iter().for_each(|it| html += &format!("<th>{}", escape(it)));
            for row in rows {
                html += "\n<tr>";
                row.iter().for_each(|it| html += &format!("<td>{}", escape(it)));
            }
            html += "\n</table>\n";
        }
        html + &format!("<p><code>{}</code></p>\n", escape(&figure.command()))
    }

    /// The tables of a figure: its own, its numbers, and its claims with their formulas.
    fn tables(&self, figure: &Judged<'_>) -> Vec<Listed> {
        let mut all = Vec::new();
        if let Some(points) = &figure.points {
            let own = points.tables.iter().map(|Table { title, heads, rows }| Listed {
                title: title.clone(),
                heads: heads.clone(),
                rows: rows.clone(),
            });
            all.extend(own);
            let number = |Number { name, value, unit }: &Number| {
                vec![name.clone(), shown(*value), unit.clone()]
            };
            let heads = ["", "value", "unit"];
            all.push(Listed::new("Numbers", &heads, points.numbers.iter().map(number).collect()));
        }
        let claim = |it: &Claim| {
            let holding = figure.holding(it, self.differences).words();
            vec![
                it.id.clone(),
                it.says.clone(),
                it.formula.clone(),
                it.demand.clone(),
                shown(it.value),
                holding,
            ]
        };
        let heads = ["claim", "says", "formula", "demand", "here", ""];
        all.push(Listed::new("Claims", &heads, figure.claims.iter().map(claim).collect()));
        all.retain(|it| !it.rows.is_empty());
        all
    }

    /// The whole of `FIGURES.md`, whose pictures are in the folder `figures` beside it.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {TITLE}\n\n");
        for line in PREFACE.map(str::to_owned).iter().chain(&self.counts()) {
            if !line.is_empty() {
                text += &format!("{}\n\n", plain(line));
            }
        }
        text += "`rma-figures paper` runs them again, and writes a page; `rma-figures paper --docs docs` writes this \
                 file, its pictures and their points.\n\n";
        let mut rows = Vec::new();
        for figure in &self.figures {
            let About { id, title, says, .. } = figure.about;
            let note = figure.note.clone().unwrap_or_default();
            let named = format!("[{id}](#{id}): {}", plain(title));
            let verdict = figure.verdict.words().to_owned();
            rows.push(vec![
                named,
                verdict,
                plain(says),
                String::new(),
                String::new(),
                plain(&note),
            ]);
            rows.extend(figure.claims.iter().map(|it| {
                let holding = figure.holding(it, self.differences).words();
                let cells = [&it.says, &it.paper, &shown(it.value), &holding].map(|it| plain(it));
                [String::new(), String::new()].into_iter().chain(cells).collect()
            }));
        }
        let heads = ["figure", "verdict", "the paper says", "paper", "here", ""];
        text += &markdown_table(&heads.map(str::to_owned), &rows);
        for (index, figure) in self.figures.iter().enumerate() {
            if self.begins_beyond(index) {
                let [title, words] = BEYOND;
                text += &format!("\n# {title}\n\n{}\n", plain(words));
            }
            text += &self.markdown_figure(figure);
        }
        text
    }

    fn markdown_figure(&self, figure: &Judged<'_>) -> String {
        let About { id, title, says, .. } = figure.about;
        // The anchor, as what a heading's is depends on the site.
        let mut text =
            format!("\n## <a name=\"{id}\"></a>{id}: {}\n\n{}\n\n", plain(title), plain(says));
        if let Some(note) = &figure.note {
            text += &format!("{}\n\n", plain(note));
        }
        let is_drawn = figure.picture().and_then(|it| it.file()).is_some();
        match &figure.points {
            Some(_) if is_drawn => text += &format!("![{}](figures/{id}.svg)\n\n", plain(title)),
            Some(points) => text += &format!("{}\n\n", plain(&points.line())),
            None => {}
        }
        for Listed { title, heads, rows } in self.tables(figure) {
            let rows: Vec<Row> =
                rows.iter().map(|it| it.iter().map(|it| plain(it)).collect()).collect();
            text += &format!("{}:\n\n{}\n", plain(&title), markdown_table(&heads, &rows));
        }
        text + &format!("`{}`\n", figure.command())
    }
}

/// A table as it is shown.
struct Listed {
    title: String,
    heads: Vec<String>,
    rows: Vec<Row>,
}

impl Listed {
    fn new(title: &str, heads: &[&str], rows: Vec<Row>) -> Self {
        let heads = heads.iter().map(|it| (*it).to_owned()).collect();
        Self { title: title.to_owned(), heads, rows }
    }
}

fn markdown_table(heads: &[String], rows: &[Row]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(heads.len()));
    let rows: String = rows.iter().map(|it| line(it)).collect();
    line(heads) + &rule + &rows
}

/// Text without what Markdown takes for its own.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => plain.extend(['\\', letter]),
            _ if letter.is_control() => plain.push(' '),
            _ => plain.push(letter),
        }
    }
    plain
}
