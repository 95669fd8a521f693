//! Which columns fit, and where they are cut.

use super::{Look, Table, dim, left, path, plain, right, wrapped};

fn table() -> Table {
    let mut table = Table::new([
        left("ID"),
        right("AGE"),
        left("AGENT").optional(),
        left("FOLDER").optional(),
        left("TITLE"),
    ]);
    table.row([
        plain("5d0c2a4e"),
        plain("30 s"),
        dim("loopback"),
        dim("/home/u/project"),
        plain("日本語の題名が長すぎて入らない場合でも切る"),
    ]);
    table.row([
        plain("80275ae4"),
        plain("2 h"),
        dim("a"),
        dim("/"),
        plain("Deploy\tthe site\nnow"),
    ]);
    table
}

fn at(columns: Option<usize>) -> Vec<String> {
    let look = Look {
        columns,
        unicode: true,
        ..Look::default()
    };
    table().lines(look)
}

#[test]
fn what_fits_is_shown_and_only_the_last_column_is_cut() {
    assert_eq!(
        at(Some(200)),
        [
            "ID         AGE  AGENT     FOLDER           TITLE",
            "5d0c2a4e  30 s  loopback  /home/u/project  日本語の題名が長すぎて入らない場合でも切る",
            "80275ae4   2 h  a         /                Deploy the site now",
        ]
    );
    assert_eq!(
        at(Some(60)),
        [
            "ID         AGE  AGENT     TITLE",
            "5d0c2a4e  30 s  loopback  日本語の題名が長すぎて入らない場…",
            "80275ae4   2 h  a         Deploy the site now",
        ]
    );
    assert_eq!(
        at(Some(30)),
        [
            "ID         AGE  TITLE",
            "5d0c2a4e  30 s  日本語の題名…",
            "80275ae4   2 h  Deploy the si…",
        ]
    );
    // An id is never cut, whatever the width.
    assert!(at(Some(5))[1].starts_with("5d0c2a4e  30 s  "));
}

/// Both ends of a path matter.
#[test]
fn paths_lose_their_middle() {
    let mut table = Table::new([left("ID"), left("MADE").optional(), path("FROM"), path("TO")]);
    table.row(["1", "today", "/home/u/a/long/way/to/old", "/new"].map(plain));
    let at = |columns| {
        let look = Look {
            columns: Some(columns),
            unicode: true,
            ..Look::default()
        };
        table.lines(look).pop().unwrap()
    };
    assert_eq!(at(80), "1   today  /home/u/a/long/way/to/old  /new");
    assert_eq!(at(30), "1   /home/u/a…way/to/old  /new");
    assert_eq!(at(20), "1   /hom…o/old  /new");
}

/// Clauses stay whole where they fit.
#[test]
fn a_list_of_clauses_continues_on_further_lines() {
    let mut table = Table::new([left("SESSION"), wrapped("ORIGIN")]);
    table.row(["5d0c2a4e", "edited, from 80275ae4, carries 1 turn"].map(plain));
    table.row(["80275ae4", "created"].map(plain));
    let at = |columns| {
        let look = Look {
            columns: Some(columns),
            ..Look::default()
        };
        table.lines(look)
    };
    let expected = [
        "SESSION   ORIGIN",
        "5d0c2a4e  edited, from 80275ae4,",
        "          carries 1 turn",
        "80275ae4  created",
    ];
    assert_eq!(at(34), expected);
    assert_eq!(at(47).len(), 3);
    assert_eq!(
        at(20)[2..5],
        ["          from", "          80275ae4,", "          carries 1"]
    );
}

#[test]
fn elsewhere_it_is_whole_and_separated_by_tabs() {
    assert_eq!(at(None)[1], "80275ae4\t2 h\ta\t/\tDeploy the site now");
    assert_eq!(at(None).len(), 2);
}

#[test]
fn styles_are_written_where_they_are_shown() {
    let coloured = Look {
        coloured: true,
        columns: Some(80),
        ..Look::default()
    };
    assert!(
        table().lines(coloured)[1].contains("\u{1b}[2mloopback"),
        "{:?}",
        table().lines(coloured)
    );
    let plain = Look {
        coloured: false,
        ..coloured
    };
    assert!(!table().lines(plain).join("").contains('\u{1b}'));
    assert_eq!(Table::new([left("ID")]).lines(plain), Vec::<String>::new());
}
