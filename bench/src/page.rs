//! Pages of HTML with all that they need inside: no request, no script that runs, light and dark.

use crate::drawing::{self, escape};

const STYLE: &str = include_str!("page/style.css");

/// All of a page. The body is HTML, the title is not.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let (title, pictures) = (escape(title), drawing::STYLE);
    format!(
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n\
         <meta name='viewport' content='width=device-width'>\n\
         <meta name='color-scheme' content='light dark'>\n\
         <meta http-equiv='Content-Security-Policy' \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{pictures}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}
