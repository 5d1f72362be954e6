//! One page over HTTP/1.0, of bounded size and in bounded time.

use core::{net::SocketAddr, time::Duration};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
};

use rma_xdp::time::{Clock, TscClock};

/// How long an answer may take. `MetricsEndpoint` serves others for up to 2 s first.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest answer that is read. A host's metrics are some 30 KiB.
const LEN_MAX: usize = 1 << 20;

/// The reason why there is nothing to show.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatError {
    /// Nobody can be asked there.
    #[error(
        "no metrics from {address}: {source}; start that host with `rma-bench serve --metrics {address}`"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Something else listens there.
    #[error(
        "{address} does not speak HTTP: give the address that `rma-bench serve --metrics ADDRESS:PORT` prints"
    )]
    NotHttp {
        /// The address.
        address: SocketAddr,
    },
    /// The server has no such page.
    #[error(
        "http://{address}/metrics is answered with \"{status}\": give the address that `rma-bench serve --metrics \
         ADDRESS:PORT` prints"
    )]
    Status {
        /// The address.
        address: SocketAddr,
        /// The status, with its number.
        status: String,
    },
    /// The answer does not end.
    #[error("http://{address}/metrics is longer than {LEN_MAX} bytes, which no host's metrics are")]
    TooLong {
        /// The address.
        address: SocketAddr,
    },
    /// The answer is not whole.
    #[error(
        "the answer of http://{address}/metrics breaks off: look whether the host has just ended"
    )]
    Cut {
        /// The address.
        address: SocketAddr,
    },
    /// The page is another program's.
    #[error(
        "http://{address}/metrics has no metrics of 1RMA: give the address that `rma-bench serve --metrics ADDRESS:PORT` \
         prints, or that of a service with a `MetricsEndpoint`"
    )]
    NotMetrics {
        /// The address.
        address: SocketAddr,
    },
}

/// Returns the page `/metrics` of the server at `address`.
pub(super) fn metrics(address: SocketAddr) -> Result<String, StatError> {
    let answer = ask(address).map_err(|source| StatError::Unreachable { address, source })?;
    page(address, &answer)
}

/// The answer as it came, cut where it is longer than the longest.
fn ask(address: SocketAddr) -> io::Result<Vec<u8>> {
    let clock = TscClock::new();
    let left = || {
        let left = PATIENCE.checked_sub(Duration::from_nanos(clock.now().as_nanos()));
        left.filter(|left| !left.is_zero())
            .ok_or_else(|| io::Error::new(ErrorKind::TimedOut, "no answer within 3 s"))
    };
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = vec![0; LEN_MAX + 1];
    let mut len = 0;
    while len < answer.len() {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut answer[len..]) {
            Ok(0) => break,
            Ok(got) => len += got,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    answer.truncate(len);
    Ok(answer)
}

/// Returns the body of an answer.
fn page(address: SocketAddr, answer: &[u8]) -> Result<String, StatError> {
    const END: &[u8] = b"\r\n\r\n";
    if !answer.starts_with(b"HTTP/1.") {
        return Err(StatError::NotHttp { address });
    }
    if answer.len() > LEN_MAX {
        return Err(StatError::TooLong { address });
    }
    let end = answer.windows(END.len()).position(|it| it == END);
    let end = end.ok_or(StatError::Cut { address })?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split_once(' ')).map_or("", |(_, it)| it);
    if !status.starts_with("200") {
        return Err(StatError::Status { address, status: status.to_owned() });
    }
    let body = &answer[end + END.len()..];
    let len = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())
    });
    if len.flatten().is_some_and(|len| body.len() < len) {
        return Err(StatError::Cut { address });
    }
    Ok(String::from_utf8_lossy(body).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    fn address() -> SocketAddr {
        ([127, 0, 0, 1], 9090).into()
    }

    #[test]
    fn the_body_of_a_whole_answer_is_the_page() {
        for head in ["HTTP/1.1 200 OK\r\nContent-Length: 4", "HTTP/1.0 200 OK", "HTTP/1.1 200"] {
            let answer = format!("{head}\r\n\r\na 1\n");
            assert_eq!(page(address(), answer.as_bytes()).unwrap(), "a 1\n");
        }
    }

    #[test]
    fn any_other_answer_is_an_error_that_names_the_server() {
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(LEN_MAX));
        for (answer, says) in [
            ("", "does not speak HTTP"),
            ("SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\nno\n", "\"404 Not Found\""),
            ("HTTP/1.1\r\n\r\n", "\"\""),
            ("HTTP/1.1 200 OK\r\n", "breaks off"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\na 1\n", "breaks off"),
            (&long, "longer than 1048576 bytes"),
        ] {
            let error = page(address(), answer.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("127.0.0.1:9090"), "{error}");
        }
    }

    #[test]
    fn a_server_that_never_stops_sending_is_read_to_the_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                while stream.write_all(&[b'a'; 4096]).is_ok() {}
            });
            let error = metrics(address).unwrap_err();
            assert!(matches!(error, StatError::TooLong { .. }), "{error}");
        });
    }

    #[test]
    fn a_port_where_nobody_listens_is_told_with_the_command_that_does() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = metrics(address).unwrap_err().to_string();
        assert!(error.contains("refused"), "{error}");
        assert!(error.contains(&format!("rma-bench serve --metrics {address}")), "{error}");
    }
}
