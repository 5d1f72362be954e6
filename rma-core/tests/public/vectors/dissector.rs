//! The offsets that `docs/dissector.lua` shows fields by are those of the golden frames. Its text
//! is read, as there may be no Wireshark.

use std::collections::BTreeMap;

use rma_core::{limits::TAG_LEN, packet::FRAMES_MAX, port::Port, wire};
use serde_json::Value;

use crate::vectors::vectors;

/// Name, first octet, octets.
type Row<'a> = (&'a str, usize, usize);

/// The rows of fields in a piece of the text.
fn rows(text: &str) -> Vec<Row<'_>> {
    text.split("{ \"").skip(1).filter_map(row).collect()
}

fn row(text: &str) -> Option<Row<'_>> {
    let (name, numbers) = text.split_once("\", ")?;
    let (at, octets) = numbers.split_once(" }")?.0.split_once(", ")?;
    Some((name, at.parse().ok()?, octets.parse().ok()?))
}

/// Returns the text between two words.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to} behind {from}")).0
}

/// A field's octets as a number, which the vectors have as a number or in hexadecimal.
fn number(value: &Value) -> u64 {
    let hex =
        || u64::from_str_radix(value.as_str().expect("hexadecimal"), 16).expect("hexadecimal");
    value.as_u64().unwrap_or_else(hex)
}

#[test]
fn the_dissector_has_every_field_of_every_frame_where_it_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dissector.lua");
    let text = &std::fs::read_to_string(path).expect("docs/dissector.lua is in git");
    let (version, port) = (wire::VERSION, Port::ONE_RMA);
    let constants = format!("{version}, {FRAMES_MAX}, {TAG_LEN}, {port}\n");
    assert!(text.contains(&format!("VERSION, FRAMES_MAX, TAG, PORT = {constants}")));
    let common = rows(between(text, "local COMMON = {\n", "\n}"));
    let op = rows(between(text, "local OP = ", "\n"));
    let mut lists = BTreeMap::from([("OP", op.clone())]);
    lists.insert("MUTATION", [op, rows(between(text, "local MUTATION = ", "\n"))].concat());
    lists.insert("NOTICE", rows(between(text, "local NOTICE = ", "\n")));
    let types = between(text, "local TYPES = {\n", "\n}");

    let all = vectors();
    for frame in all["frames"].as_array().expect("a list of frames") {
        let name = frame["frame_type"].as_str().expect("a name");
        let octets = frame["frame"].as_str().expect("octets");
        let code = u8::from_str_radix(&octets[2..4], 16).expect("octets");
        let kind = types.split(&format!("[{code}] = {{ \"{name}\", ")).nth(1);
        let kind = kind.and_then(|rest| rest.split("\n    [").next()).expect("every type");
        let mut fields = rows(kind);
        for (list, more) in &lists {
            if kind.contains(list) {
                fields.extend(more);
            }
        }
        let (header_len, has_payload) = kind.split_once(", ").expect("its length");
        let ciphertext = frame["ciphertext"].as_str().expect("octets").len();
        let header_len: usize = header_len.parse().expect("a number");
        assert_eq!(2 * (header_len + TAG_LEN) + ciphertext, octets.len(), "{name}");
        let is_right = match has_payload.split_once(", ").expect("its payload").0 {
            "false" => ciphertext == 0,
            "true" => ciphertext > 0,
            octets => octets.parse() == Ok(ciphertext / 2),
        };
        assert!(is_right, "the payload of {name}");

        fields.extend(&common);
        let shown: usize = fields.iter().map(|row| row.2).sum();
        assert_eq!(shown, header_len, "each octet of the header of {name} is in a field");
        for (field, at, len) in fields {
            let [header, own] = ["header", "fields"].map(|part| &frame[part][field]);
            let is = u64::from_str_radix(&octets[2 * at..2 * (at + len)], 16).expect("octets");
            let expected = match field {
                "frame_type" => code.into(),
                _ if header.is_null() => number(own),
                _ => number(header),
            };
            assert_eq!(is, expected, "{field} of {name}");
        }
    }
}
