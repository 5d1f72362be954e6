//! Probes for UDP ports that are taken.

use std::{fs, io};

/// Whether no UDP socket of the calling thread's network namespace has `port`, at whichever
/// address.
///
/// Reads the kernel's table. Nothing is bound to find out: a child that another thread of the test
/// forks just then would hold that socket until it has become another program, and whoever binds
/// the port in the meantime would be told that it is taken.
///
/// # Errors
/// If the kernel's table cannot be read.
pub fn udp_port_is_unused(port: u16) -> io::Result<bool> {
    for table in ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"] {
        let table = match fs::read_to_string(table) {
            // A kernel without IPv6 has no table of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            table => table?,
        };
        if table.lines().skip(1).filter_map(port_of).any(|taken| taken == port) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The port of a row: `sl local_address rem_address …`, an address being `0100007F:2AF8`.
fn port_of(row: &str) -> Option<u16> {
    let (_, port) = row.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_port_is_taken_as_long_as_a_socket_has_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else {
                assert!(address.starts_with('['), "{address} is there on every kernel");
                continue;
            };
            let port = socket.local_addr().unwrap().port();
            assert!(!udp_port_is_unused(port).unwrap(), "{address}: {port}");
        }
    }

    #[test]
    fn rows_of_both_families_tell_their_port() {
        let ipv4 = "  213: 0100007F:2AF8 00000000:0000 07 00000000:00000000 00:00000000 0 0 0 2";
        let ipv6 = "  213: 00000000000000000000000001000000:8AF8 0000:0000 07 0:0 00:0 0 0 0 2";
        assert_eq!((port_of(ipv4), port_of(ipv6)), (Some(0x2af8), Some(0x8af8)));
        assert_eq!((port_of(""), port_of("  1: here")), (None, None));
    }
}
