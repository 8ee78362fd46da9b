//! Server-sent events, parsed from bytes as they arrive.
//!
//! Knows: lines, fields, comments and blank lines, in whatever pieces a socket delivers. [`super::dialect`] knows the
//! meaning of the data.

/// Longest line that is kept, in bytes; far above any server's tokens.
pub(super) const MOST_LINE: usize = 16 << 20;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// Contents of its `data` lines.
    Data(&'a [u8]),
    /// Data of an event that the server marks as an error, by `event: error` or by llama.cpp's `error:` line.
    Error(&'a [u8]),
}

/// A line grew beyond [`MOST_LINE`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Incremental parser of events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Data of an event whose end has not arrived.
    data: Vec<u8>,
    kind: Kind,
    /// True if `data` holds a line, which may be empty.
    begun: bool,
    /// True if the first line has been seen; a byte order mark is removed only there.
    opened: bool,
    /// True if the last byte was a carriage return, which ends a line alone or together with a line feed.
    returned: bool,
}

/// Kinds of events, by the name in their `event` field.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An event without a name, or with a name that has no effect.
    #[default]
    Plain,
    Error,
    /// A keep-alive, whose data are ignored.
    Ping,
}

/// Names of keep-alive events: `ping` is Anthropic's, the others are gateways'.
const PINGS: [&[u8]; 3] = [b"ping", b"heartbeat", b"keepalive"];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Events {
    /// Processes the next bytes; `each` receives every event that they complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(Event)) -> Result<(), TooLong> {
        if !bytes.is_empty() && std::mem::take(&mut self.returned) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let (head, rest) = bytes.split_at(end);
            let (mark, mut after) = rest.split_first().unwrap_or((&b'\n', &[]));
            if *mark == b'\r' {
                self.returned = after.is_empty();
                after = after.strip_prefix(b"\n").unwrap_or(after);
            }
            bytes = after;
            if self.line.is_empty() {
                self.line(head, each)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.line(&line, each)?;
                line.clear();
                self.line = line;
            }
        }
        if self.line.len() + bytes.len() > MOST_LINE {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Processes the end of the body: an event without its final blank line counts, too.
    pub(super) fn end(&mut self, each: &mut impl FnMut(Event)) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line(&line, each)?;
        }
        self.line(b"", each)
    }

    fn line(&mut self, line: &[u8], each: &mut impl FnMut(Event)) -> Result<(), TooLong> {
        let mark = if self.opened { b"" } else { BYTE_ORDER_MARK };
        self.opened = true;
        let line = line.strip_prefix(mark).unwrap_or(line);
        if line.is_empty() {
            match self.kind {
                _ if !self.begun => {}
                Kind::Plain => each(Event::Data(&self.data)),
                Kind::Error => each(Event::Error(&self.data)),
                Kind::Ping => {}
            }
            self.data.clear();
            (self.kind, self.begun) = (Kind::Plain, false);
            return Ok(());
        }
        if let Some(value) = value_of(line, b"data") {
            self.push(value)
        } else if let Some(value) = value_of(line, b"error") {
            self.kind = Kind::Error;
            self.push(value)
        } else {
            match value_of(line, b"event") {
                Some(b"error") => self.kind = Kind::Error,
                Some(name) if PINGS.contains(&name) => self.kind = Kind::Ping,
                _ => {}
            }
            Ok(())
        }
    }

    /// Adds a line of data; the lines of one event are joined by line feeds.
    fn push(&mut self, value: &[u8]) -> Result<(), TooLong> {
        if self.data.len() + value.len() > MOST_LINE {
            return Err(TooLong);
        }
        if self.begun {
            self.data.push(b'\n');
        }
        self.begun = true;
        self.data.extend_from_slice(value);
        Ok(())
    }
}

/// Value of `line` if it has this field, without the one optional space after the colon.
fn value_of<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(field)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<(bool, String)> {
        let mut parser = Events::default();
        let mut seen = Vec::new();
        let mut keep = |event: Event| match event {
            Event::Data(d) => seen.push((false, String::from_utf8(d.to_vec()).unwrap())),
            Event::Error(d) => seen.push((true, String::from_utf8(d.to_vec()).unwrap())),
        };
        pieces.iter().for_each(|piece| parser.feed(piece, &mut keep).unwrap());
        parser.end(&mut keep).unwrap();
        seen
    }

    const TEXT: &[u8] =
        b": keep-alive\r\n\r\ndata: {\"a\": 1}\n\nid: 7\ndata:b\ndata: c\r\n\r\n: ping\n\nevent: error\n\
        data: broken\n\nerror: {\"code\": 500}\n\ndata:\n\ndata: [DONE]";

    #[test]
    fn fields_comments_and_line_ends() {
        let expected = [
            (false, "{\"a\": 1}"),
            (false, "b\nc"),
            (true, "broken"),
            (true, "{\"code\": 500}"),
            (false, ""),
            (false, "[DONE]"),
        ];
        let seen = events(&[TEXT]);
        assert_eq!(seen.iter().map(|(e, t)| (*e, t.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn any_two_cuts_give_the_same_events() {
        let whole = events(&[TEXT]);
        for first in 0..=TEXT.len() {
            for second in first..=TEXT.len() {
                let pieces = [&TEXT[..first], &TEXT[first..second], &TEXT[second..]];
                assert_eq!(events(&pieces), whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn byte_order_marks_and_signs_of_life_are_left_out() {
        let text: &[u8] = b"\xef\xbb\xbfdata: a\n\nevent: ping\ndata: {}\n\nevent: message\ndata: b\n\n";
        let expected = [(false, "a".to_owned()), (false, "b".to_owned())];
        for cut in 0..text.len() {
            assert_eq!(events(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
    }

    /// Lines end in a carriage return, a line feed, or both, wherever the pair is cut.
    #[test]
    fn lines_end_in_three_ways() {
        let expected = [(false, "a".to_owned()), (false, "b\nc".to_owned())];
        for end in ["\n", "\r", "\r\n"] {
            let text = ["data: a", "", ": ping", "data: b", "data: c", "", ""].join(end);
            for cut in 0..text.len() {
                let (head, rest) = text.as_bytes().split_at(cut);
                assert_eq!(events(&[head, rest]), expected, "{end:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut parser = Events::default();
        let megabyte = vec![b'x'; 1 << 20];
        for _ in 0..16 {
            assert_eq!(parser.feed(&megabyte, &mut |_| ()), Ok(()));
        }
        assert_eq!(parser.feed(b"x", &mut |_| ()), Err(TooLong));
        // The limit applies to the sum of many lines of one event, too.
        let mut parser = Events::default();
        let line = [&b"data:"[..], &megabyte, b"\n"].concat();
        assert!((0..17).any(|_| parser.feed(&line, &mut |_| ()) == Err(TooLong)));
    }
}
