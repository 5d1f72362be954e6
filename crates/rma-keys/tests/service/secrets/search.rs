//! Looks for the octets of a key in whatever form somebody may show them.

/// In which form `key` is in `output`, if it is.
pub(crate) fn shown(output: &[u8], key: &[u8]) -> Option<String> {
    let forms = forms(key);
    // Lists are broken into lines and indented in as many ways as there are.
    let packed: Vec<u8> = output.iter().copied().filter(|it| !it.is_ascii_whitespace()).collect();
    let is_in = |form: &Vec<u8>| contains(output, form) || contains(&packed, form);
    forms.into_iter().find(|(_, form)| is_in(form)).map(|(name, _)| name)
}

fn contains(output: &[u8], form: &[u8]) -> bool {
    output.windows(form.len()).any(|it| it == form)
}

/// All forms of `key`, by name.
pub(crate) fn forms(key: &[u8]) -> Vec<(String, Vec<u8>)> {
    let join = |each: fn(&u8) -> String, between: &str| {
        let each: Vec<String> = key.iter().map(each).collect();
        each.join(between).into_bytes()
    };
    let mut forms = vec![
        ("octets".into(), key.to_vec()),
        ("hexadecimal digits".into(), join(|it| format!("{it:02x}"), "")),
        ("capital hexadecimal digits".into(), join(|it| format!("{it:02X}"), "")),
        ("pairs with colons".into(), join(|it| format!("{it:02x}"), ":")),
        ("a list".into(), join(u8::to_string, ",")),
        ("a list in hexadecimal".into(), join(|it| format!("0x{it:02x}"), ",")),
        ("a list in short hexadecimal".into(), join(|it| format!("{it:x}"), ",")),
        ("an escaped text".into(), key.escape_ascii().to_string().into_bytes()),
    ];
    if let Ok(octets) = <[u8; 16]>::try_from(key) {
        let (big, little) = (u128::from_be_bytes(octets), u128::from_le_bytes(octets));
        forms.push(("a number".into(), big.to_string().into_bytes()));
        forms.push(("a number, the other way round".into(), little.to_string().into_bytes()));
    }
    for (name, alphabet) in [("base64", &STANDARD), ("base64 of URLs", &URLS)] {
        // Wherever it begins among what is written: what depends on its neighbours is left out.
        for skip in 0..3 {
            let len = (key.len() - skip) / 3 * 3;
            let text = key[skip..skip + len].chunks(3).flat_map(|it| {
                let bits = it.iter().fold(0, |bits, &octet| bits << 8 | usize::from(octet));
                [18, 12, 6, 0].map(|shift| alphabet[bits >> shift & 63])
            });
            forms.push((format!("{name} from octet {skip} on"), text.collect()));
        }
    }
    forms
}

const STANDARD: [u8; 64] = alphabet(*b"+/");
const URLS: [u8; 64] = alphabet(*b"-_");

const fn alphabet(last: [u8; 2]) -> [u8; 64] {
    let mut all = [0; 64];
    let mut at = 0;
    while at < 26 {
        all[at] = b'A' + at as u8;
        all[26 + at] = b'a' + at as u8;
        at += 1;
    }
    let mut digit = 0;
    while digit < 10 {
        all[52 + digit] = b'0' + digit as u8;
        digit += 1;
    }
    [all[62], all[63]] = last;
    all
}

#[test]
fn a_secret_would_be_found_in_every_form() {
    let key: [u8; 16] = core::array::from_fn(|at| (at * 89 + 201) as u8);
    assert_eq!(shown(b"nothing to see here", &key), None);
    for (name, form) in forms(&key) {
        let output = [b"before ", &form[..], b" after"].concat();
        assert!(shown(&output, &key).is_some(), "{name}");
    }
    for debug in
        [format!("{key:?}"), format!("{key:#?}"), format!("{key:02x?}"), format!("{key:x?}")]
    {
        assert!(shown(debug.as_bytes(), &key).is_some(), "{debug}");
    }
    // "foobar", as everybody knows it.
    assert!(forms(b"foobar").iter().any(|(_, form)| form == b"Zm9vYmFy"));
}
