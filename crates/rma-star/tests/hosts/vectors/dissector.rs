//! The offsets that `docs/dissector.lua` shows fields by are those of the golden frames. Its text
//! is read, as there may be no Wireshark.

use rma_core::limits::TAG_LEN;
use rma_star::{
    config::{STATEFUL_PORT, STATELESS_PORT},
    wire,
};
use serde_json::Value;

use crate::vectors::vectors;

/// A field as the text has it.
#[derive(Clone, Copy)]
struct Row<'a> {
    name: &'a str,
    at: usize,
    octets: usize,
    /// Its bits, if others share its octets.
    mask: Option<u64>,
}

/// The rows of fields in a piece of the text.
fn rows(text: &str) -> Vec<Row<'_>> {
    text.split("{ \"").skip(1).filter_map(row).collect()
}

fn row(text: &str) -> Option<Row<'_>> {
    let (name, numbers) = text.split_once("\", ")?;
    let mut numbers = numbers.split_once(" }")?.0.split(", ");
    let (at, octets) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let bits = |it: &str| u64::from_str_radix(it.trim_start_matches("0x"), 16).ok();
    let mask = match numbers.next() {
        Some(mask) => Some(bits(mask)?),
        None => None,
    };
    Some(Row { name, at, octets, mask })
}

/// Returns the text between two words.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to} behind {from}")).0
}

/// The numbers of a text: `36, 1, 64` or `8`.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect()
}

/// So many octets of a frame as a number.
fn octets_at(frame: &[u8], at: usize, octets: usize) -> u64 {
    frame[at..at + octets].iter().fold(0, |all, &octet| all << 8 | u64::from(octet))
}

/// A field's octets as a number, which the vectors have as a number, in hexadecimal or as a flag.
fn number(value: &Value) -> u64 {
    match value {
        Value::Bool(it) => u64::from(*it),
        Value::String(it) => u64::from_str_radix(it, 16).expect("hexadecimal"),
        _ => value.as_u64().expect("a number"),
    }
}

/// Returns the value of a field in a golden frame.
fn golden(frame: &Value, field: &str, octets: &[u8]) -> u64 {
    match field {
        "frame_type" => octets[1].into(),
        "from_z" => number(&frame["from_z"]),
        "version" => wire::VERSION.into(),
        "time" => number(&frame["time"]) & u64::from(u32::MAX),
        "zero" | "reserved" => 0,
        _ => match &frame["header"][field] {
            Value::Null => number(&frame["fields"][field]),
            value => number(value),
        },
    }
}

#[test]
fn the_dissector_has_every_field_of_every_frame_where_it_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dissector.lua");
    let text = &std::fs::read_to_string(path).expect("docs/dissector.lua is in git");
    let constants = format!("{}, {STATELESS_PORT}, {STATEFUL_PORT}\n", wire::VERSION);
    assert!(text.contains(&format!("STAR_VERSION, STATELESS_PORT, STATEFUL_PORT = {constants}")));
    let list = |name: &str| rows(between(text, &format!("local {name} = {{\n"), "\n}"));
    let common = list("STAR_COMMON");
    let lists = ["GUIDE", "CHUNK"].map(|name| (name, list(name)));
    let types = between(text, "local STAR_TYPES = {\n", "\n}");

    for frame in vectors()["frames"].as_array().expect("a list of frames") {
        let name = frame["kind"].as_str().expect("a name");
        let hexadecimal = frame["frame"].as_str().expect("octets");
        let octets: Vec<u8> = (0..hexadecimal.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).expect("octets"))
            .collect();
        let code = match name {
            "ea of z" => "ea_of_z".to_owned(),
            _ => format!("[{:#04x}]", octets[1]),
        };
        let kind = types.split(&format!("{code} = {{ \"{name}\", ")).nth(1);
        let kind = kind.and_then(|rest| rest.split("\n    [").next());
        let kind = kind.unwrap_or_else(|| panic!("{code} {name}"));
        let kind = kind.split("\n    ea_of_z").next().expect("its first line");
        let mut fields = rows(kind);
        for (list, more) in &lists {
            if kind.contains(list) {
                fields.extend(more);
            }
        }
        let (header_len, rest) = kind.split_once(", ").expect("its length");
        let header_len: usize = header_len.parse().expect("a number");
        let told = if rest.starts_with("{ {") {
            between(rest, "{ ", " } }")
        } else {
            rest.split_once(", ").expect("its payload").0
        };
        let part = |told: &str| match numbers(told)[..] {
            [len] => len,
            [at, len, each, ref always @ ..] => {
                let count = octets_at(&octets, at as usize, len as usize);
                each * count + always.iter().sum::<u64>()
            }
            _ => panic!("the payload of {name}: {told}"),
        };
        let payload_len: u64 = told.split("}, {").map(part).sum();
        assert_eq!(header_len + payload_len as usize + TAG_LEN, octets.len(), "{name}");

        fields.extend(&common);
        let bits = |row: &Row<'_>| row.mask.map_or(8 * row.octets as u32, u64::count_ones);
        let shown: u32 = fields.iter().map(bits).sum();
        assert_eq!(
            shown as usize,
            8 * header_len,
            "each bit of the header of {name} is in a field"
        );
        for Row { name: field, at, octets: len, mask } in fields {
            let whole = octets_at(&octets, at, len);
            let is = mask.map_or(whole, |mask| (whole & mask) >> mask.trailing_zeros());
            assert_eq!(is, golden(frame, field, &octets), "{field} of {name}");
        }
    }
}
