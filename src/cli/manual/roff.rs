//! Roff as `man` reads it: the few requests that a page needs, which every `man` knows, and text that says what it says.

/// How letters look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Font {
    Roman,
    /// What is typed as it stands.
    Bold,
    /// What stands for something else.
    Italic,
}

/// Parts of a line: how they look, and what they say.
pub(super) type Parts = Vec<(Font, String)>;

/// A page that is being written.
pub(super) struct Roff {
    text: String,
}

impl Roff {
    /// A page with its title. It has no date: the same source makes the same page.
    pub(super) fn new(name: &str, section: &str, source: &str, manual: &str) -> Self {
        let mut page = Self { text: String::new() };
        let title = name.to_uppercase();
        page.request("TH", &[&title, section, "", source, manual]);
        // Command lines are not hyphenated, nor drawn out to fill a line.
        page.request("nh", &[]);
        page.request("ad", &["l"]);
        page
    }

    /// The whole page.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Begins a section.
    pub(super) fn section(&mut self, heading: &str) {
        self.request("SH", &[heading]);
    }

    /// Begins a paragraph.
    pub(super) fn paragraph(&mut self) {
        self.request("PP", &[]);
    }

    /// Begins an item: the next line names it, and what follows says something of it.
    pub(super) fn tag(&mut self) {
        self.request("TP", &[]);
    }

    /// The same, so many columns apart.
    pub(super) fn tag_of(&mut self, columns: usize) {
        self.request("TP", &[&columns.to_string()]);
    }

    /// Leaves no room between items, or does so again.
    pub(super) fn close_together(&mut self, is_close: bool) {
        self.request("PD", if is_close { &["0"] } else { &[] });
    }

    /// Puts what is written meanwhile further to the right.
    pub(super) fn indented(&mut self, write: impl FnOnce(&mut Self)) {
        self.request("RS", &[]);
        write(self);
        self.request("RE", &[]);
    }

    /// Lines that stay as they are, a little to the right.
    pub(super) fn literal<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        self.request("RS", &["4"]);
        self.request("nf", &[]);
        for line in lines {
            self.line(&[(Font::Roman, line)]);
        }
        self.request("fi", &[]);
        self.request("RE", &[]);
    }

    /// The name of another page, and what stands right behind it.
    pub(super) fn reference(&mut self, page: &str, section: &str, behind: &str) {
        let behind = format!("({section}){behind}");
        self.line(&[(Font::Bold, page), (Font::Roman, &*behind)]);
    }

    /// One line of text; how it is broken on the screen is decided there. Spaces in bold and italic parts hold together.
    pub(super) fn line<T: AsRef<str>>(&mut self, parts: &[(Font, T)]) {
        let mut line = String::new();
        for (font, text) in parts {
            let text = escaped(text.as_ref());
            match font {
                Font::Roman => line.push_str(&text),
                Font::Bold => line.push_str(&format!("\\fB{}\\fR", text.replace(' ', "\\ "))),
                Font::Italic => line.push_str(&format!("\\fI{}\\fR", text.replace(' ', "\\ "))),
            }
        }
        let line = line.trim_matches(' ');
        // An empty one would leave room on the screen.
        if line.is_empty() {
            return;
        }
        // At the beginning of a line it would make a request of it.
        if line.starts_with('.') {
            self.text.push_str("\\&");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn request(&mut self, name: &str, arguments: &[&str]) {
        self.text.push('.');
        self.text.push_str(name);
        for argument in arguments {
            let argument = escaped(argument).replace('"', "\\(dq");
            // An empty one has its place too.
            match argument.is_empty() || argument.contains(' ') {
                true => self.text.push_str(&format!(" \"{argument}\"")),
                false => self.text.push_str(&format!(" {argument}")),
            }
        }
        self.text.push('\n');
    }
}

/// Text of which each character is shown as it is: what is copied from a page to a shell has to work there, so that dashes
/// and quotes must not become others that look better.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => safe.push_str("\\e"),
            '-' => safe.push_str("\\-"),
            '\'' => safe.push_str("\\(aq"),
            '`' => safe.push_str("\\(ga"),
            '^' => safe.push_str("\\(ha"),
            '~' => safe.push_str("\\(ti"),
            '\u{a0}' => safe.push_str("\\ "),
            '\n' => safe.push(' '),
            other if other.is_ascii() => safe.push(other),
            other => safe.push_str(&format!("\\[u{:04X}]", u32::from(other))),
        }
    }
    safe
}
