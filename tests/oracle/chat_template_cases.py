"""Cases for test_chat_template.py: expressions, statements, white space, errors.

All are rendered with VARS. What stands in EXPRESSIONS and TEMPLATES must render in Jinja itself; what stands
in ERRORS must fail there."""
import itertools

VARS = {
    "s": "Hello, World", "empty": "", "sp": "  \t padded \n", "uni": "Grüße, 世界 🙂 ñ", "multi": "one\ntwo\r\n\nfour\n",
    "quote": "it's \"quoted\" \\ back", "n": 42, "neg": -7, "zero": 0, "f": 3.75, "big": 12345678901234, "t": True,
    "no": False, "nil": None, "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 2, "a": 1, "c": {"x": [1, 2], "y": None}}, "ed": {}, "el": [],
    "users": [{"name": "Ann", "age": 31, "tags": ["x"], "addr": {"city": "Rome"}},
              {"name": "bob", "age": 25, "tags": [], "addr": {"city": "Oslo"}},
              {"name": "Cid", "age": 31, "tags": ["y", "z"], "addr": {"city": "bern"}}],
    "keys": {"items": 1, "get": 2, "keys": 3, "values": 4, "update": 5, "normal": 6},
    "html": "<b>\"x\" & 'y'</b>", "u64": 18446744073709551615, "i64": -9223372036854775808, "tiny": 1e-7, "huge": 1e22,
    "ctl": "a\x00b\x1f\x7f\u0085\u2028é",
}

# One line, one group; " ;; " stands between expressions.
EXPRESSIONS = r"""
1 + 2 ;; 3 - 5 ;; 2 * 3.5 ;; 7 / 2 ;; 7 // 2 ;; -7 // 2 ;; 7 // -2 ;; 7 % 3 ;; -7 % 3 ;; 7 % -3 ;; 7.5 // 2 ;; -7.5 % 2
2 ** 10 ;; 2 ** -1 ;; 2 ** 3 ** 2 ;; -2 ** 2 ;; (-2) ** 2 ;; 2 ** 0.5 ;; 1e3 ;; 1.5e-3 ;; 1_000_000 ;; 0x1F ;; 0o17 ;; 0b101
1 + 2 * 3 ;; (1 + 2) * 3 ;; 10 - 4 - 3 ;; 2 * 3 % 4 ;; -n ;; +n ;; - -n ;; -f ;; true + true ;; n + t ;; 10 / 5 ;; 0.1 + 0.2
1e16 ;; 1e15 ;; 123456789.123 ;; 1e-4 ;; 1e-5 ;; 1.0 ;; 100.0 ;; -0.0 ;; tiny ;; huge ;; f ;; 1e308 * 10 ;; 5e-324 ;; 3.0 * 2
"a" + "b" ;; "ab" * 3 ;; 3 * "ab" ;; "ab" * 0 ;; "ab" * -1 ;; [1] * 3 ;; 2 * [1, 2] ;; [1] + [2] ;; (1, 2) + (3,) ;; (1,) * 2
"a" ~ 1 ~ none ~ true ~ [1] ~ 2.5 ;; 1 ~ 2 ;; "a" ~ (1 + 2) ;; "x" ~ undefined_thing ~ "y" ;; "con" "cat" 'ed' ;; 'a' "b" ~ 'c'
1 < 2 ;; 1 < 2 < 3 ;; 1 < 3 < 2 ;; 3 > 2 >= 2 ;; 1 == 1.0 ;; 1 == true ;; "1" == 1 ;; none == none ;; 1 != 2 ;; "a" < "b" ;; [1, 2] < [1, 3]
[1, 2] == [1, 2] ;; [1] == (1,) ;; {"a": 1} == {"a": 1.0} ;; (1, "a") < (1, "b") ;; "ab" > "aa" ;; 2 <= 2.0 ;; t == 1 ;; no == 0
1 in [1, 2] ;; 3 not in [1, 2] ;; "ell" in s ;; "x" in "" ;; "" in "" ;; "a" in d ;; "z" not in d ;; 2 in d ;; (1 in [1]) == true
none in [none] ;; 1 in (1, 2) ;; "a" in undefined_thing ;; undefined_thing in [1] ;; 3 in range(5) ;; 7 in range(0, 10, 2) ;; "x" in {"x": 1}
not true ;; not 0 ;; not "" ;; not [] ;; not undefined_thing ;; not not 1 ;; true and false ;; 1 and 2 ;; 0 and 2 ;; 0 or 2 ;; "" or "x"
1 or 2 ;; none or 0 or "last" ;; true and not false ;; not 1 == 2 ;; 1 if true else 2 ;; 1 if false else 2 ;; 1 if false
"a" if 0 else "b" if 0 else "c" ;; ("y" if n > 40 else "n") ~ "!" ;; none if true ;; (1 if false) is defined
true ;; false ;; none ;; True ;; False ;; None ;; [] ;; {} ;; () ;; (1,) ;; (1, 2) ;; [1, "a", none, true, 2.5, [1], {"k": "v"}] ;; {"a": 1, 'b': [2], 3: none}
"it's" ;; 'say "hi"' ;; "a\nb" ;; 'tab\tx' ;; "\x41\u00e9\U0001F642" ;; "\101" ;; "\q" ;; "a\\b" ;; ["it's", 'x"y', "a'b\"c", "\n\t\r\\", "é🙂", "\x00\x7f\u200b"]
s[0] ;; s[-1] ;; s[100] ;; s[0:5] ;; s[:5] ;; s[7:] ;; s[:-1] ;; s[::-1] ;; s[::2] ;; s[-5:-2] ;; s[5:2] ;; s[10:1:-2] ;; s[-100:100] ;; uni[7] ;; uni[::-1] ;; uni[3:9]
l[0] ;; l[-1] ;; l[5] ;; l[1:] ;; l[::-1] ;; l[:0] ;; l[-2:] ;; l[5:] ;; l[2:0:-1] ;; l[true] ;; nested[1][1][0] ;; nested[0][::-1] ;; (1, 2, 3)[1:] ;; (1, 2, 3)[0] ;; range(10)[3] ;; range(10)[2:8:3] ;; range(10)[::-1] ;; l[none:2] ;; l[0:none:2]
d.a ;; d["b"] ;; d.c.x[1] ;; d.c.y ;; d["c"]["x"] ;; d.missing ;; d["missing"] ;; d.c.missing ;; keys.normal ;; keys["items"] ;; keys["update"] ;; keys["get"] ;; l.0 ;; nested.1.0 ;; users[0].name ;; users[-1]["addr"].city ;; "abc".1 ;; d[[1]] ;; l["x"] ;; n.foo ;; nil.foo ;; nil["x"] ;; n[0]
l[1.0] is undefined ;; d[none] is undefined ;; users[5] is defined ;; loop is defined
s|upper ;; s|lower ;; s|title ;; "hello wORLD-foo (bar)"|title ;; s|capitalize ;; "éCOLE"|capitalize ;; uni|upper ;; "straße"|upper ;; "ÀÉ"|lower ;; sp|trim ;; "xxaxx"|trim("x") ;; nil|upper ;; n|string ;; undefined_thing|upper
s|length ;; l|length ;; d|length ;; uni|length ;; undefined_thing|length ;; empty|length ;; range(7)|length ;; (1, 2)|count ;; d.items()|length
s|replace("l", "L") ;; s|replace("l", "L", 2) ;; s|replace("", "-") ;; "aaa"|replace("a", "aa") ;; n|replace("4", "x") ;; s|replace("zz", "") ;; "ab"|replace("", "-", 2)
undefined_thing|default("x") ;; nil|default("x") ;; nil|default("x", true) ;; empty|d("e", boolean=true) ;; s|default("x") ;; undefined_thing|default ;; undefined_thing|d(none) ;; d.zz|default({"k": 1})
l|first ;; l|last ;; s|first ;; s|last ;; el|first ;; el|last ;; d|first ;; d|last ;; undefined_thing|first ;; range(3)|last ;; el|first is undefined
l|join ;; l|join(", ") ;; words|join("-") ;; s|join(".") ;; d|join(",") ;; users|join(", ", attribute="name") ;; users|join("/", "addr.city") ;; [1, none, true, 2.5]|join("|") ;; undefined_thing|join(",") ;; l|join(0) ;; range(4)|join
l|sort ;; l|sort(reverse=true) ;; words|sort ;; words|sort(case_sensitive=true) ;; users|sort(attribute="age")|map(attribute="name")|list ;; users|sort(attribute="age,name", reverse=true)|map(attribute="name")|join(",") ;; d|sort ;; users|sort(attribute="addr.city")|map(attribute="name")|list ;; "hello"|sort ;; [[2, 1], [1, 9]]|sort ;; undefined_thing|sort ;; [3, 2.5, true]|sort ;; nested|sort(attribute=0)
words|unique|list ;; words|unique(case_sensitive=true)|list ;; [1, 1.0, true, 2]|unique|list ;; users|unique(attribute="age")|map(attribute="name")|list ;; el|unique|list
l|min ;; l|max ;; words|min ;; words|max ;; words|max(case_sensitive=true) ;; el|min is undefined ;; users|max(attribute="age") == users[0] ;; "hello"|max ;; [2, 1.5]|min
l|sum ;; users|sum(attribute="age") ;; l|sum(start=10) ;; el|sum ;; [[1], [2]]|sum(start=[]) ;; [true, 2]|sum ;; users|sum("age", 5) ;; ([0.1] * 3)|sum
l|reverse|list ;; s|reverse ;; uni|reverse ;; d|reverse|list ;; (1, 2)|reverse|list ;; range(3)|reverse|list ;; l|map("string")|reverse|list ;; el|reverse|list ;; undefined_thing|reverse|list
s|list ;; d|list ;; (1, 2)|list ;; range(3)|list ;; undefined_thing|list ;; d.items()|list ;; d.keys()|list ;; d.values()|list ;; uni|list ;; d|items|list ;; undefined_thing|items|list
"12"|int ;; "12.7"|int ;; "x"|int ;; "x"|int(9) ;; "0x1F"|int(base=16) ;; "1F"|int(0, 16) ;; 3.99|int ;; -3.99|int ;; true|int ;; nil|int ;; "  7 "|int ;; "1_000"|int ;; "-5"|int ;; ""|int ;; l|int ;; "1e3"|int ;; "12abc"|int(default=-1) ;; "0b11"|int(0, 2) ;; "0o17"|int(0, 8) ;; "077"|int ;; "z"|int(0, 36)
"3.5"|float ;; "x"|float ;; "x"|float(1.5) ;; 3|float ;; "1e-3"|float ;; nil|float ;; " 2 "|float ;; "inf"|float ;; "-Infinity"|float ;; "nan"|float ;; true|float ;; "1_0.5"|float ;; "0x1"|float ;; ".5"|float ;; "5."|float
-7|abs ;; 7|abs ;; neg|abs ;; -3.5|abs ;; (-3.5)|abs ;; true|abs ;; zero|abs
3.14159|round(2) ;; 2.5|round ;; 3.5|round ;; 2.675|round(2) ;; 7|round ;; 42.55|round(1, "floor") ;; 42.55|round(1, "ceil") ;; 42|round(-1) ;; 1234|round(-2) ;; 1250|round(-2) ;; 1350|round(-2) ;; -2.5|round ;; 1234.5|round(-2) ;; 42|round(1, "floor") ;; 0.5|round ;; 1.5|round ;; true|round ;; 25|round(-1) ;; 35|round(-1) ;; -25|round(-1)
l|map("string")|list ;; words|map("upper")|list ;; words|map("length")|list ;; users|map(attribute="name")|list ;; users|map(attribute="addr.city")|join(",") ;; users|map(attribute="zz", default="-")|list ;; words|map("replace", "p", "P")|list ;; [[1, 2], [3]]|map("first")|list ;; words|map("truncate", 3, true, "")|list ;; undefined_thing|map("upper")|list ;; nil|map("upper")|list ;; nested|map(attribute=0)|list ;; users|map(attribute="tags")|map("length")|sum ;; l|map("round", 1)|list ;; users|map(attribute="addr.zip", default="none")|list ;; l|map("int")|select("odd")|list
l|select("odd")|list ;; l|select|list ;; [0, 1, "", "a", none]|select|list ;; l|reject("odd")|list ;; l|select("gt", 1)|list ;; [0, 1]|reject|list ;; words|select("lower")|list ;; words|select("in", ["fig"])|list ;; l|select("divisibleby", 2)|list ;; [1, none, 2]|reject("none")|list ;; words|select("equalto", "fig")|first ;; nested|select("sequence")|list|length ;; words|reject("==", "fig")|list ;; l|select(">=", 2)|list
users|selectattr("age", "equalto", 31)|map(attribute="name")|list ;; users|selectattr("tags")|map(attribute="name")|list ;; users|rejectattr("tags")|map(attribute="name")|list ;; users|selectattr("age", "gt", 30)|list|length ;; users|selectattr("zz", "defined")|list ;; users|selectattr("addr.city", "eq", "Oslo")|map(attribute="name")|first ;; users|rejectattr("name", "in", ["bob"])|map(attribute="name")|join ;; users|selectattr("name", "lower")|map(attribute="name")|list ;; users|selectattr("tags", "equalto", [])|map(attribute="age")|list
d|dictsort ;; d.c|dictsort(reverse=true) ;; {"b": 1, "A": 2, "c": 0}|dictsort ;; {"b": 1, "A": 2, "c": 0}|dictsort(true) ;; {"b": 1, "A": 2}|dictsort(false, "value") ;; {"b": 1, "A": 2}|dictsort(by="value", reverse=true) ;; ed|dictsort
"a\nb\n\nc"|indent ;; "a\nb"|indent(2) ;; "a\nb"|indent(2, true) ;; "a\n\nb"|indent(2, blank=true) ;; "a\nb"|indent("> ") ;; "a\nb"|indent(first=true, width=1) ;; empty|indent ;; "a\n"|indent(2, true, true) ;; multi|indent(1) ;; "a\nb"|indent(0) ;; "\n"|indent(3, true)
s|safe ;; html|e ;; html|escape ;; html|e|e ;; html|forceescape ;; (html|e) + "<" ;; "<" + (html|safe) ;; (html|safe) ~ "<" ;; html|e|upper ;; ("<b>"|safe) + "&" + "<" ;; ["<"|e] ;; "<"|safe|length ;; ("a"|safe) == "a" ;; (html|e)|forceescape ;; ("<"|safe) * 3 + ">" ;; n|e ;; nil|e
s|wordcount ;; uni|wordcount ;; empty|wordcount ;; "a-b c_d  e's"|wordcount
"%s and %s"|format(1, "x") ;; "%d%%"|format(42) ;; "%05.2f|%-6s|%6s|%+d"|format(3.14159, "ab", "cd", 5) ;; "%(a)s-%(b)03d"|format(a="x", b=7) ;; "%x %X %o %#x"|format(255, 255, 8, 255) ;; "%s" % "x" ;; "%s %s" % (1, 2) ;; "%s" % none ;; "%r" % "it's" ;; "%e %g %G" % (12345.678, 0.0001, 1e20) ;; "%c%c" % (65, "b") ;; "%5s|%-5s|%.2s" % ("é", "é", "éàü") ;; "%d" % 3.99 ;; "%d" % true ;; "%s" % [1, 2] ;; "%*d" % (5, 42) ;; "% d" % 5 ;; "%i" % -3 ;; "plain" % [] ;; "%(a)s" % d ;; "%06d" % -42 ;; "%s"|format(undefined_thing) ;; "%.3f" % 2 ;; "%%" % () ;; "%-05d|" % 3 ;; "%.0f" % 2.5 ;; "%f" % 1e10 ;; "%s" % ((1, 2),)
"{} {}".format(1, "a") ;; "{0}{1}{0}".format("x", "y") ;; "{a}-{b}".format(a=1, b="z") ;; "{:>5}|{:<5}|{:^5}|".format("a", "b", "c") ;; "{:05d} {:+d} {:x} {:,}".format(42, 5, 255, 1234567) ;; "{:.2f} {:8.3f}|{:e}".format(3.14159, 2.5, 1234.5) ;; "{{}}".format() ;; "{!r}".format("x") ;; "{0[a]}".format(d) ;; "{0.name} {0[addr][city]}".format(users[0]) ;; "{:*^9}".format("mid") ;; "{}".format(none) ;; "{:%}".format(0.25) ;; "{:<4}|".format(7) ;; "{:s}".format("q") ;; "{:#x} {:b} {:o}".format(255, 5, 8) ;; "{:.3}".format("abcdef") ;; "{0[x][1]}".format(d.c) ;; "{:,.2f}".format(1234567.891) ;; "{} {x}".format(1, x=[2]) ;; "{:6}|".format(1.5) ;; "{!s:>4}|".format(1)
d|tojson ;; l|tojson ;; s|tojson ;; uni|tojson ;; quote|tojson ;; nil|tojson ;; t|tojson ;; f|tojson ;; html|tojson ;; ed|tojson ;; el|tojson ;; d|tojson(indent=2) ;; users|tojson(indent=4) ;; {"b": 1, "a": [1, {"z": none}]}|tojson(sort_keys=true) ;; d|tojson(separators=(",", ":")) ;; d|tojson(indent=2, separators=(",", ": ")) ;; uni|tojson(ensure_ascii=true) ;; ctl|tojson ;; ed|tojson(indent=2) ;; [[], {}]|tojson(indent=1) ;; (1, 2)|tojson ;; {1: 2, none: 3, true: 4, 1.5: 5}|tojson ;; d|tojson(indent=0) ;; d|tojson(indent="\t") ;; u64|tojson ;; i64|tojson ;; huge|tojson ;; ("nan"|float)|tojson ;; [1e400, -1e400]|tojson ;; "</script>"|tojson ;; d|tojson|length ;; users[0]|tojson(true) ;; "🙂\x7f"|tojson(ensure_ascii=true)
"abcdefgh"|truncate(5) ;; "abc def ghi"|truncate(9, leeway=0) ;; "abc def ghi"|truncate(9, true, leeway=0) ;; "abc def ghi"|truncate(9, false, "…", 0) ;; "short"|truncate(255) ;; "abcdefghij"|truncate(5, true, "..", 1) ;; "mid"|center(9) ;; "ab"|center(5) ;; "abc"|center(6) ;; "ab"|center(1)
[1, 2, 3, 4, 5]|batch(2)|list ;; [1, 2, 3]|batch(2, "-")|list ;; [1, 2, 3, 4, 5]|slice(3)|list ;; [1, 2, 3]|slice(2, "-")|list ;; el|batch(2)|list ;; el|slice(2)|list
users|groupby("age")|list|length ;; users|groupby("age")|map("first")|list ;; users|groupby("age")|map(attribute="grouper")|list ;; users|groupby("age")|map(attribute="list")|map("length")|list ;; words|groupby(0)|map("first")|list ;; users|groupby("zz", default="-")|map("first")|list ;; words|groupby(0, case_sensitive=true)|map(attribute="grouper")|list
"abc"|attr("upper") is callable ;; d|attr("a") is defined ;; s|attr("nope") is defined ;; html|string ;; d|string ;; [none]|string
undefined_thing is defined ;; n is defined ;; undefined_thing is undefined ;; nil is none ;; n is none ;; nil is not none ;; t is boolean ;; 1 is boolean ;; t is true ;; 1 is true ;; no is false ;; n is integer ;; t is integer ;; f is integer ;; f is float ;; n is float ;; n is number ;; t is number ;; s is number ;; s is string ;; n is string ;; nil is string ;; d is mapping ;; l is mapping ;; l is sequence ;; s is sequence ;; d is sequence ;; n is sequence ;; range(3) is sequence ;; l is iterable ;; s is iterable ;; n is iterable ;; undefined_thing is iterable ;; nil is iterable ;; d.items() is iterable ;; d.items() is sequence
3 is odd ;; 4 is odd ;; 4 is even ;; -3 is odd ;; 9 is divisibleby 3 ;; 9 is divisibleby(2) ;; "abc" is lower ;; "ABC" is upper ;; "aBc" is lower ;; "" is lower ;; "1" is upper ;; 1 is in [1, 2] ;; 5 is not in [1] ;; "e" is in s ;; n is eq 42 ;; n is equalto 42 ;; n is ne 1 ;; n is lt 50 ;; n is gt 50 ;; n is le 42 ;; n is ge 43 ;; n is lessthan 43 ;; n is greaterthan 43 ;; nil is sameas none ;; 1 is sameas true ;; t is sameas true ;; raise_exception is callable ;; n is callable ;; s.upper is callable ;; "upper" is filter ;; "nope" is filter ;; "odd" is test ;; "nope" is test ;; (html|e) is escaped ;; html is escaped ;; undefined_thing is callable ;; u64 is integer ;; u64 is number ;; f is divisibleby 1.25
not undefined_thing is defined ;; n is defined and n > 1 ;; n is not defined or n == 42 ;; s is string and s|length > 3 ;; 1 is odd and 2 is even ;; n is eq 42 if t else 0 ;; [1] is iterable and "x" ;; n is even ~ "x" ;; users is not mapping ;; l[0] is odd ;; d.a is eq(1) ;; not nil is none
sp.strip() ;; sp.lstrip() ;; sp.rstrip() ;; "xxhixx".strip("x") ;; "abcabc".lstrip("ab") ;; "abcabc".rstrip("bc") ;; "\u3000é\u00a0".strip() ;; "hello".strip("") ;; "äöxöä".strip("öä") ;; ("ab" * 40 + "c" + "ab" * 40).rfind("ab" * 30) ;; ("ab" * 40 + "c" + "ab" * 40).rfind("c" + "ab" * 30) ;; "ab".rfind("ab" * 30) ;; ("x" * 50 + "y" + "x" * 50).rsplit("x" * 40, 1) ;; ("x" * 100).rpartition("x" * 33)[0]|length ;; "abc".rfind("") ;; ("é" * 50).rfind("é" * 20) ;; sp.strip(none)
s.split(",") ;; s.split() ;; " a  b c ".split() ;; " a  b c ".split(none, 1) ;; "a,b,c".split(",", 1) ;; "a,b,c".rsplit(",", 1) ;; "a b c".rsplit(none, 1) ;; " a b c ".rsplit(maxsplit=1) ;; "".split() ;; "".split(",") ;; "a,,b".split(",") ;; "<t>x</t>y".split("</t>")[-1] ;; "aXXbXXc".split("XX")[0] ;; " a  b ".rsplit() ;; "a,b".split(sep=",") ;; "abc".split("abc") ;; "a b".split(" ", -1) ;; "a b c".split(none, 0) ;; "a,b,c".rsplit(",", 0) ;; "a  b".split(" ")
s.startswith("Hello") ;; s.endswith("World") ;; s.startswith(("x", "He")) ;; s.endswith(("x", "y")) ;; s.startswith("") ;; s.startswith("World", 7) ;; s.endswith("Hello", 0, 5) ;; empty.startswith("a") ;; s.startswith("ello", 1, 5) ;; s.startswith(()) ;; s.endswith(()) ;; "".startswith("", 1) ;; "ab".startswith("", 3)
s.replace("l", "L") ;; s.replace("l", "", 1) ;; s.upper() ;; s.lower() ;; "they're bill's".title() ;; "hELLO wORLD".capitalize() ;; "aBc".swapcase() ;; s.find("o") ;; s.find("z") ;; s.rfind("o") ;; s.find("o", 5) ;; s.find("o", 5, 8) ;; uni.find("世") ;; s.index("W") ;; s.rindex("l") ;; s.count("l") ;; s.count("l", 5) ;; "aaa".count("aa") ;; s.count("") ;; "".find("") ;; uni.find("🙂", -6) ;; s.find("H", -100)
", ".join(words) ;; "".join([]) ;; "-".join("abc") ;; ",".join(d) ;; ",".join(d.keys()) ;; "1".isdigit() ;; "1a".isdigit() ;; "".isdigit() ;; "²".isdigit() ;; "²".isdecimal() ;; "ab".isalpha() ;; "ab1".isalnum() ;; " ".isspace() ;; "ab".islower() ;; "AB".isupper() ;; "é".isascii() ;; "x".isascii() ;; "".isascii() ;; "٣".isdigit() ;; "٣".isdecimal()
multi.splitlines() ;; multi.splitlines(true) ;; "".splitlines() ;; "a".splitlines() ;; "a\n".splitlines() ;; "a\x0bb\x0cc\u2028d".splitlines() ;; "prefix-x".removeprefix("prefix-") ;; "x.txt".removesuffix(".txt") ;; "x".removesuffix("yy") ;; "a=b=c".partition("=") ;; "a=b=c".rpartition("=") ;; "abc".partition("x") ;; "abc".rpartition("x") ;; "5".zfill(3) ;; "-5".zfill(4) ;; "ab".ljust(4) ~ "|" ;; "ab".rjust(4, ".") ;; "ab".center(5, "*") ;; "abc".center(4, "*") ;; "abc".zfill(2) ;; "+5".zfill(4)
d.items()|list ;; d.keys()|list ;; d.values()|list ;; d.get("a") ;; d.get("zz") ;; d.get("zz", 5) ;; d.get("zz", default_thing) is undefined ;; keys.items()|list|length ;; d.items() ;; d.keys() ;; d.values() ;; ed.items() ;; d.copy() == d ;; l.index(1) ;; l.count(3) ;; (1, 2, 1).count(1) ;; (1, 2).index(2) ;; l.copy() ;; ("a", 1) in {"a": 1}.items() ;; "a" in d.keys() ;; 1 in d.values()
range(3)|list ;; range(1, 4)|list ;; range(0, 10, 3)|list ;; range(5, 0, -2)|list ;; range(0)|list ;; range(3) ;; range(1, 10, 2) ;; range(-1)|list ;; range(3) == range(0, 3) ;; range(5)|sum ;; range(2, 2)|list
dict(a=1, b=2) ;; dict([["x", 1]]) ;; dict({"k": 1}, z=2) ;; dict() ;; namespace(a=1).a ;; namespace({"b": 2}).b ;; namespace(a=1).zz is undefined ;; namespace(a=[1])["a"] ;; dict(a=1).items()|list ;; namespace() is defined
undefined_thing ;; undefined_thing ~ "" ;; [undefined_thing] ;; undefined_thing == other_undefined ;; undefined_thing == none ;; undefined_thing|string ;; undefined_thing is string ;; (undefined_thing or "x") ;; d.missing == undefined_thing ;; undefined_thing != 1 ;; undefined_thing|list == []
u64 ;; i64 ;; u64 == u64 ;; u64 > 1 ;; u64 < i64 ;; [u64, 1, i64, 2.5]|sort ;; 1e30 > u64 ;; u64|string ;; [u64] ;; u64|float ;; d ;; users[1] ;; ctl ;; [ctl] ;; quote ;; [quote] ;; nested ;; t ;; nil ;; {"a": (1,)} ;; {"é": "ü"} ;; [1.0, 1e100, 1e-10] ;; [true, none] ;; {none: true} ;; ((), [], {})
strftime_now("%Y-%m-%d") ;; strftime_now("%d %b %Y") ;; strftime_now("%H:%M:%S") ;; strftime_now("%A, %B %d %j %y %I %p %a %% é") ;; strftime_now("") ;; strftime_now("%z%Z|%f") ;; strftime_now("%-d %e %U %w %c %x %X %s"[:14])
[1, 2,] ;; {"a": 1,} ;; (1, 2,) ;; range(3,)|list ;; s  ;;  upper ;; s|upper|lower|title ;; -1|abs ;; 2 ~ 3|string ;; -5|abs + 1 ;; 5 - 2|abs ;; not n|string == "42" ;; "a" if s|length > 3 else "b"
(l|sort)[0] ;; (l)[0] ;; [1, 2][0] ;; {"a": 1}["a"] ;; {"a": 1}.a ;; "abc"[1] ;; "abc".upper()[0] ;; s.split(",")[1].strip().lower() ;; (s ~ "!")|upper ;; users|map(attribute="age")|list|sort|last ;; users|selectattr("age", "gt", 26)|map(attribute="name")|map("upper")|join("+") ;; (users|first).name ;; users[0]["tags"][0] ;; users[0].tags|first
d["a"] + 1 ;; d.get("b") * 2 ;; (d.a, d.b) ;; [d.a] + l ;; l[d.a] ;; l[-d.a] ;; words[1:][0] ;; "%s" % s[0:2] ;; s[d.a:d.b + 3] ;; d.c.x|sum ;; "a,b"|replace(",", ";") ;; n == 42 and "yes" or "no" ;; (n > 1) ~ (n < 1) ;; 1 if n else 2 if s else 3
"a" is in "abc" and "b" ;; 1 in [1] in [[1]] ;; 1 < 2 == true ;; 1 == 1 in [1] ;; 2 > 1 != 3 ;; "a" not in "b" ;; not "a" in "abc" ;; not ("a" in "abc")
"tab\tnewline\nin literal" ;; "\'\"" ;; '\a\b\f\v'|length ;; "{{ not a tag }}" ;; "{% neither %}" ;; "{# nor #}" ;; "}}" ;; "%}" ;; {"a": {"b": {}}} ;; {"a": "}}"}["a"]
"""


def expressions():
    return [e for line in EXPRESSIONS.strip().split("\n") for e in line.split(" ;; ")]


# Whole templates.
TEMPLATES = [
    # as Llama 4's: a date, a system message that is cut off, tools in the first user's message, contents of parts, calls as objects
    """{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if users[0]['name'] is string %}{%- set first = users[0]['name']|trim %}{%- set users = users[1:] %}{%- else %}{%- set first = "" %}{%- endif %}
{{- "<|header_start|>system<|header_end|>\n\n" ~ first ~ " on " ~ date_string ~ "<|eot|>" }}
{%- for u in users %}{%- if not ('tool_calls' in u or u.name == 'nobody') %}
{{- '<|header_start|>' + u['name'] + '<|header_end|>\n\n' }}
{%- if u.age is string %}{{- u.age }}{%- elif u.age is mapping or u.age is iterable %}{{- u.age|tojson }}{%- else %}{{- u.age }}{%- endif %}
{%- for p in [{'type': 'text', 'text': 'a'}, {'type': 'image'}] %}{%- if p['type'] == 'image' %}{{- '<|image|>' }}{%- elif p['type'] == 'text' %}{{- p['text'] }}{%- endif %}{%- endfor %}
{%- for t in (tools or [d]) %}{{- '{"name": "f", ' }}{{- '"parameters": ' }}{{- t|tojson(indent=4) }}{{- "}" }}{%- endfor %}{{- "<|eot|>" }}
{%- elif 'tool_calls' in u and u.tool_calls|length > 0 %}{{- '<|python_start|>' ~ u.name ~ '<|python_end|>' }}{%- endif %}{%- endfor %}
{{- '<|header_start|>assistant<|header_end|>\n\n' }}""",
    # for
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in el %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in undefined_thing %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for c in 'héy' %}[{{ c }}]{% endfor %}",
    "{% for (a, b) in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in l if x != 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
    "{% for x in l if x != 1 %}{{ loop.last }}{{ loop.nextitem }} {{ loop.revindex }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in [1, 2] %}{% for y in 'ab' %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in nested %}{% set outer = loop %}{% for y in x %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% break %}{% else %}E{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in [1] %}{% if 0 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == x %}{% break %}{% endif %}{{ y }}{% endfor %};{% endfor %}",
    "{% for x in l %}{% for y in el %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in l %}{% set v %}{{ x }}{% break %}{% endset %}{% endfor %}|",
    "{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{% endfor %}",
    "{% for x in (1, 2, 3)[::-1] %}{{ x }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in l|map('string') %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in l|sort if x is odd %}{{ loop.index }}:{{ x }} {% endfor %}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    "{% set g = l|select %}{{ g|first }}{{ g|first }}{{ g|list }}",
    "{% set g = l|select %}{{ 1 in g }}{{ g|list }}",
    "{% set g = l|reverse %}{% for x in g %}{{ x }}{% break %}{% endfor %}|",
    "{% for m in users %}{% if loop.first %}F{% elif loop.last %}L{% else %}M{% endif %}{% endfor %}",
    "{% for x in l %}{% if loop.index0 > 0 and l[loop.index0 - 1] > x %}<{% endif %}{{ x }}{% endfor %}",
    "{% set ns = namespace(on=true) %}{% for x in l if ns.on %}{{ x }}{% set ns.on = false %}{% endfor %}",
    "{% for loop_ in l %}{{ loop_ }}{% endfor %}{{ x is defined }}",
    "{{ loop is defined }}{% for x in l %}{{ loop is defined }}{% endfor %}{{ x is defined }}",
    # if
    "{% if n %}a{% endif %}", "{% if zero %}a{% else %}b{% endif %}", "{% if zero %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if zero %}{% elif el %}{% elif ed %}{% else %}d{% endif %}", "{% if not s %}a{% elif s == 'x' %}b{% endif %}|",
    "{% if n > 1 and (l or el) and 'x' not in s %}yes{% endif %}", "{% if n: %}a{% endif %}",
    "{% if (1, 2) %}t{% endif %}", "{% if 1, %}t{% endif %}", "{% if undefined_thing %}a{% endif %}",
    "{% if d.c.y is none %}n{% endif %}{% if range(0) %}r{% endif %}{% if 0.0 %}f{% endif %}{% if ' ' %}s{% endif %}",
    # set and scopes
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set (x, y) = [1, 2] %}{{ y }}{{ x }}",
    "{% set x = 1, 2 %}{{ x }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | replace('a', 'b') | trim %} aaa {% endset %}[{{ x }}]",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if false %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% for i in l %}{% if i == 1 %}{% set z = 'hit' %}{% endif %}{{ z }}{% endfor %}",
    "{% set n = n + 1 %}{{ n }}", "{% set s = s|upper %}{{ s }}{% set s = s[:2] %}{{ s }}",
    "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns.b is defined }}",
    "{% set ns = namespace(t='') %}{% for w in words %}{% set ns.t = ns.t ~ w[0] %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}",
    "{% set ns = namespace(a=1, b=none) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}",
    "{% set a = [] %}{% set b = a + [1] %}{{ a }}{{ b }}", "{% set x = y %}{{ x is defined }}{{ x }}",
    "{% set range = 5 %}{{ range }}", "{% set x = 'a' if n else 'b' %}{{ x }}", "{% set dict = {'a': 1} %}{{ dict.a }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% with n = n + 1, m = n %}{{ n }}{{ m }}{% endwith %}{{ n }}", "{% with x = 1 %}{% with y = x %}{{ y }}{% endwith %}{% endwith %}",
    "{% filter upper %}a{{ s }}b{% endfilter %}", "{% filter trim|replace('a', 'b')|title %} aa xa {% endfilter %}",
    "{% filter indent(2, true) %}a\nb{% endfilter %}", "{% filter upper %}{% filter lower %}AbC{% endfilter %}x{% endfilter %}",
    "{% filter upper %}{% set q = 'in' %}{{ q }}{% endfilter %}{{ q is defined }}",
    "{% set x %}{% set inner = 1 %}{{ inner }}{% endset %}{{ x }}{{ inner is defined }}",
    "{% generation %}{{ s }}{% endgeneration %}!", "{% for x in l %}{%- generation -%} {{ x }} {% endgeneration %}{% endfor %}",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=4, a=5) }} {{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m('x') }}", "{% macro m() %}x{% endmacro %}{{ m()|upper }}{{ m() ~ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs|length }}{% endmacro %}{{ m(1, 2, 3) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}", "{% macro m() %}{{ n }}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}in {{ n }}{% endcall %}",
    "{% macro m(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) m(l) %}<{{ v }}>{% endcall %}",
    "{% macro m(l) %}{% for x in l %}{{ caller(x, z=x) }}{% endfor %}{% endmacro %}{% call(v, w=0, z=1) m(l) %}<{{ v }}{{ w }}{{ z }}>{% endcall %}",
    "{% macro a() %}A{{ caller() }}{% endmacro %}{% macro b() %}B{{ caller() }}{% endmacro %}{% call a() %}{% call b() %}x{% endcall %}{% endcall %}",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(*[5], **{'b': 6}) }}",
    "{% macro m() %}  {% if true %} x {% endif %}\n{% endmacro %}[{{ m() }}]", "{% macro m() %}{% endmacro %}{{ m is defined }}{{ m is callable }}",
    "{% macro m(f) %}{{ f('a') }}{% endmacro %}{% macro g(x) %}[{{ x }}]{% endmacro %}{{ m(g) }}",
    "{% macro m(a=[]) %}{{ a + [1] }}{% endmacro %}{{ m() }}{{ m() }}", "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}",
    "{% macro outer() %}{% macro inner(x) %}({{ x }}){% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}",
    "{% macro m(x) %}{% for i in x %}{{ loop.index }}{{ i }}{% endfor %}{% endmacro %}{% for y in l %}{{ m('ab') }}{{ loop.index }}{% endfor %}",
    # raw, comments, odd places
    "{% raw %}{{ x }}{% if %}{% endraw %}", "a {%- raw -%}  {{ x }}  {%- endraw -%} b", "{% raw %}\n x\n{% endraw %}\ny",
    "a{# c #}b", "a {#- c -#} b", "{# multi\nline {{ x }} {% if %} #}z", "a\n  {# c #}\nb", "a {# c -#}\n b", "{#- a -#}{#- b -#}", "{##}x", "{#-#}x",
    "{{ '{{' }}{{ '}}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{ { } } {x} %} }} #}", "{{ 1 }}{", "{", "", "\n", "\n\n", "a\n", "a\n\n", "a\r\nb\rc\r\n",
    "{{ 'tab\tnewline\nin literal' }}", "{{ 'multi\nline' ~ \"\\\nx\" }}", "{{ 'a\r\nb' }}",
    "{{\n  n\n  +\n  1\n}}", "{%\n if n\n %}x{%\nendif\n%}", "{%-if n-%} x {%-endif-%}", "{{n}}{{-n-}}{{ n -}} x {{- n }}", "{{+n}}{{ +n }}{%+ if n %}x{% endif %}",
    "{% set a=1%}{% set b = 2 -%}  {{a}}{{b}}", "{{ [1,\n2,\n] }}", "{{ '' }}{{ none }}{{ 0 }}{{ false }}", "\u00e9{{ 'ü' }}世", "\ufeff{{ n }}", "{{ n }}\n", "{{ n }}\n\n",
    "{%if n%}{%else%}{%endif%}|", "{{ s }}{{ s }}\n{{ s }}\n", "a\u00a0{%- if n %}x{% endif %}", "a\u2003{{- n }}", "a {{ n -}}\u3000 b",
    # laziness, short circuits, mixed
    "{{ n or undefined_thing.x }}", "{{ false and undefined_thing.x }}", "{{ 1 if true else undefined_thing.x }}", "{% if false %}{{ undefined_thing.x }}{% endif %}ok",
    "{% for x in [] %}{{ undefined_thing.x }}{% endfor %}ok", "{% if false %}{{ s|no_such_filter }}{% endif %}ok", "{{ 5 < 1 < undefined_thing.x }}",
    "{% set x = {} %}{% for k in 'ab' %}{% set x = dict(x, **{k: loop.index}) %}{{ x }}{% endfor %}{{ x }}",
    "{% set parts = [] %}{% for w in words %}{% set parts = parts + [w] %}{% endfor %}{{ parts }}",
    "{% for u in users|sort(attribute='name') %}{{ u.name }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for u in users %}{% for t in u.tags %}{{ t }}{% else %}-{% endfor %}{% endfor %}", "{{ users|map(attribute='name')|join(', ') }}: {{ users|length }}",
    "{% for k, g in users|groupby('age') %}{{ k }}:{% for u in g %}{{ u.name }}{% endfor %};{% endfor %}",
    "{% for g in users|groupby('age') %}{{ g.grouper }}={{ g.list|length }} {% endfor %}", "{% for row in range(7)|batch(3) %}{{ row|join(',') }};{% endfor %}",
    "{% set x = '</think>' %}{% set c = 'a</think>b</think>c' %}{{ c.split(x)[-1] }}{{ c.split(x)[0].split('<think>')[-1] }}",
    "{% for i in range(3) %}{{ ', ' if not loop.first }}{{ i }}{% endfor %}", "{{ 'x' * 3 ~ 'y' }}{{ ('a' ~ 'b') * 2 }}{{ 1 ~ (2 + 3) }}",
    "{% for m in [{'role': 'user'}, {'role': 'tool'}] %}{{ m['role'] ~ (loop.index0 % 2) ~ (m.role == 'user') }} {% endfor %}",
    "{{ 'a' + 'b' + 'c' + n|string + ('d' + 'e') }}{% set q = 'a' + 'b' %}{% set r = q + 'c' %}{% set t2 = q + 'd' %}{{ q }}{{ r }}{{ t2 }}{{ r + t2 }}",
    "{% set ns = namespace(a=[], b=[], t='', u='') %}{% for i in range(500) %}{% set ns.a = ns.a + [i] %}{% set ns.t = ns.t + i|string %}"
    "{% if i % 7 == 0 %}{% set ns.b = ns.a + ['b'] %}{% set ns.u = ns.t + '<u>' %}{% set ns.t = ns.t ~ ns.u[-4:] %}{% endif %}"
    "{% if i % 50 == 0 %}{% set ns.a = ns.b + ns.a[:3] %}{{ ns.a }}{{ ns.b }}{{ ns.t }}{{ ns.u }}{% endif %}{% endfor %}",
    "{% set a = ['x' * 2000] * 100 %}{% set b = a + [1] %}{% set c = b + [2] %}{% set d2 = b + [3] %}{{ b|length }}{{ c[-1] }}{{ d2[-1] }}{{ c[-2:] }}",
    "{% set a = 'x' * 3000 + s %}{% set b = a + '1' %}{% set c = a + '2' %}{% set e = b + c %}{{ b[-1] }}{{ c[-1] }}{{ e|length }}{{ (e + e)[-7:] }}{{ b == c }}",
    "{% set a = '' %}{% for i in range(30) %}{% set a = a + i|string %}{% endfor %}{% set ns = namespace(a='') %}{% for i in range(300) %}"
    "{% set ns.a = ns.a + i|string + ',' %}{% endfor %}{{ ns.a }}",
]

# Must fail in both.
ERRORS = [
    "{{ undefined_thing.x }}", "{{ undefined_thing['x'] }}", "{{ undefined_thing() }}", "{{ undefined_thing + 1 }}", "{{ 1 + undefined_thing }}", "{{ -undefined_thing }}",
    "{{ undefined_thing < 1 }}", "{{ undefined_thing|int }}", "{{ undefined_thing|float }}", "{{ undefined_thing|abs }}", "{{ undefined_thing|tojson }}", "{{ undefined_thing[1:] }}",
    "{{ d.missing.deeper }}", "{{ users[9].name }}", "{{ (1 if false).x }}", "{{ undefined_thing|indent }}", "{{ undefined_thing|round }}", "{{ undefined_thing|dictsort }}",
    "{{ raise_exception('stop here') }}", "{{ raise_exception('bad ' ~ n) }}", "{% for x in l %}{{ raise_exception(x) }}{% endfor %}",
    "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 'a' - 'b' }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ {} + {} }}", "{{ 'a' * 'b' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}",
    "{{ -'a' }}", "{{ +[] }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ [1] < 1 }}", "{{ {} < {} }}", "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ 'a' in none }}", "{{ [] in {'a': 1} }}", "{{ 0 ** -1 }}",
    "{{ l.append(4) }}", "{{ d.update({'x': 1}) }}", "{{ d.pop('a') }}", "{{ l.sort() }}", "{{ d.setdefault('q', 1) }}", "{{ l.insert(0, 1) }}", "{{ l.extend([1]) }}", "{{ l.remove(3) }}", "{{ d.clear() }}", "{{ l.reverse() }}",
    "{{ s.nope() }}", "{{ n() }}", "{{ s() }}", "{{ s.__class__.__mro__ }}", "{{ s.__class__() }}", "{{ ''.__class__.__base__ }}", "{{ none.x.y }}",
    "{{ s|no_such_filter }}", "{{ s is no_such_test }}", "{{ l|map('no_such') |list }}", "{{ l|select('no_such')|list }}", "{{ l|map|list }}", "{{ users|selectattr()|list }}", "{{ l|map(foo=1)|list }}",
    "{{ n|length }}", "{{ none|length }}", "{{ n|join }}", "{{ none|list }}", "{{ n|first }}", "{{ none|sort }}", "{{ [1, 'a']|sort }}", "{{ ['a', 1]|min }}", "{{ ['a']|sum }}", "{{ l|sum(start='') }}", "{{ n|reverse }}",
    "{{ s|abs }}", "{{ none|abs }}", "{{ s|round }}", "{{ none|items|list }}", "{{ l|items|list }}", "{{ l|dictsort }}", "{{ d|dictsort(by='x') }}", "{{ n|indent }}", "{{ 3.7|round(1, 'up') }}", "{{ 1.5|round('x') }}",
    "{{ [[1], [1]]|unique|list }}", "{{ {[1]: 2} }}", "{{ {{}: 1} }}", "{{ l|select('divisibleby')|list }}", "{{ l|batch|list }}", "{{ 'a'|replace('a') }}", "{{ s|upper(1) }}", "{{ s|trim(x='a') }}", "{{ l|slice(0)|list }}",
    "{{ range(3)|tojson }}", "{{ d.items()|tojson }}", "{{ namespace(a=1)|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ l|map('string')|tojson }}", "{{ d|tojson(nope=1) }}", "{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}", "{{ raise_exception|tojson }}",
    "{{ '%d' % 'x' }}", "{{ '%s %s' % 1 }}", "{{ '%s' % (1, 2) }}", "{{ 'x' % 1 }}", "{{ '%q' % 1 }}", "{{ '%' % 1 }}", "{{ '%(a)s' % 1 }}", "{{ '%(zz)s' % d }}", "{{ '%s'|format(1, 2) }}", "{{ '%s'|format(1, a=2) }}", "{{ '%x' % 1.5 }}",
    "{{ '{} {}'.format(1) }}", "{{ '{a}'.format(b=1) }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{} {0}'.format(1) }}", "{{ '{:d}'.format('x') }}", "{{ '{:q}'.format(1) }}", "{{ '{!z}'.format(1) }}",
    "{{ s.split('') }}", "{{ s.index('zz') }}", "{{ s.rindex('zz') }}", "{{ ','.join([1]) }}", "{{ s.startswith(1) }}", "{{ s.startswith(['H']) }}", "{{ s.replace('a') }}", "{{ s.strip(1) }}", "{{ s.split(1) }}", "{{ s.upper(1) }}", "{{ s.center() }}",
    "{{ s.partition('') }}", "{{ s.count() }}", "{{ s.zfill('x') }}", "{{ s.ljust(5, 'ab') }}", "{{ l.index(99) }}", "{{ d.get() }}", "{{ d.get([]) }}", "{{ d.items(1) }}", "{{ s.find(1) }}",
    "{{ range() }}", "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ range(100001) }}", "{{ range(1.5) }}", "{{ range(1, 2, 3, 4) }}", "{{ dict(1) }}", "{{ dict([1]) }}", "{{ dict([[1, 2, 3]]) }}", "{{ namespace(1) }}", "{{ namespace(undefined_thing) }}", "{{ dict(undefined_thing) }}", "{{ dict({}, {}) }}", "{{ raise_exception() }}",
    "{{ l[1:2:0] }}", "{{ l['a':] }}", "{{ d[1:] }}", "{{ n[1:] }}", "{{ nil[1:] }}", "{{ l[1.5:] }}",
    "{% for x in n %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% set a, b = 1 %}", "{% set a, b = [1] %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% set d.x = 1 %}", "{% set n.x = 1 %}", "{% set undefined_thing.x = 1 %}", "{% set ns = namespace() %}{{ ns.x.y }}", "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ l|map(attribute='a.b')|list }}", "{{ users|map(attribute='zz.y')|list }}",
    "{{ (l|map('string'))|length }}", "{{ (l|select)|last }}", "{{ 5 is divisibleby 0 }}", "{{ 'a' is odd }}", "{{ none is even }}", "{{ 1 is in 5 }}", "{{ s is lt 5 }}", "{{ dict(**{1: 2}) }}", "{{ range(*5) }}", "{{ dict(a=1, **{'a': 2}) }}",
    # not templates at all
    "{{", "{{ }}", "{{ n", "{{ n }", "{%", "{% %}", "{% if %}{% endif %}", "{% if n %}", "{% endif %}", "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for x in l %}", "{% for 1 in l %}{% endfor %}",
    "{% if n %}{% endfor %}", "{% else %}", "{% elif n %}", "{% nope %}", "{% set %}", "{% set x %}", "{% set 1 = 2 %}", "{% set x = %}", "{% set x.y.z = 1 %}", "{% set x[0] = 1 %}", "{% break %}", "{% continue %}", "{% macro %}{% endmacro %}",
    "{% macro m %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% call n %}{% endcall %}", "{% do n %}",
    "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for x in l %}{% endfor %}{% endfor %}", "{# open", "{% raw %}x", "{% raw %}{% endif %}", "{{ 'open }}", "{{ \"open }}", "{{ 'a\\' }}", "{{ '\\x1' }}", "{{ '\\u12' }}",
    "{{ '\\U00110000' }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ [1) }}", "{{ {1} }}", "{{ {1: } }}", "{{ {'a': 1 'b': 2} }}", "{{ 1 2 }}", "{{ n n }}", "{{ 1 + }}", "{{ * 1 }}", "{{ n. }}", "{{ n.'a' }}", "{{ n| }}", "{{ n|1 }}",
    "{{ n is }}", "{{ n is not }}", "{{ n is odd is even }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ f(*l, 1) }}", "{{ f(**d, a=1) }}", "{{ 1 if }}", "{{ 1 if 2 else }}", "{{ @ }}", "{{ $ }}", "{{ n ? 1 : 2 }}", "{{ n && 1 }}", "{{ !n }}",
    "{{ 1 = 2 }}", "{{ n == }}", "{{ not }}", "{{ a b c }}", "{{ 1_ }}", "{{ 012 }}", "{{ 1__0 }}", "{{ n not 1 }}", "{{ n not is odd }}", "{{ , }}", "{{ (,) }}", "{{ [,] }}", "{{ l[, 1] }}", "{{ l[1, , 2] }}", "{{ l[:,] }}", "{{ l[1:2:3:4] }}", "{{ l[1 2] }}", "{{ {,} }}", "{% filter %}{% endfilter %}", "{% filter upper %}",
    "{% filter no_such %}a{% endfilter %}", "{% with x %}{% endwith %}", "{% generation %}", "{% endgeneration %}", "{% if n %}{% else %}{% else %}{% endif %}", "{% if n %}{% else %}{% elif n %}{% endif %}", "{% set x = 1 %}{% endset %}", "{% include 'x' %}",
    "{% extends 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{{ super() }}", "{{ self.x() }}", "{{ lambda: 1 }}", "{{ [x for x in l] }}", "{{ n.__class__.x }}", "{{ n is none none }}", "{{ n;1 }}", "{{ 0x }}",
]


def whitespace():
    """Every kind of tag, every sign, every neighbourhood."""
    tags = ["{%{a} if n {b}%}X{%{a} endif {b}%}", "{{{a} n {b}}}", "{#{a} c {b}#}", "{%{a} set q = 1 {b}%}",
            "{%{a} raw {b}%}R{%{a} endraw {b}%}"]
    around = [("", ""), (" ", " "), ("\n", "\n"), ("a\n  ", "  \n  b"), ("a  ", "  b"), ("\n\n ", " \n\n"), ("\t", "\n\t z")]
    for tag, a, b, (left, right) in itertools.product(tags, ["", "-", "+"], ["", "-", "+"], around):
        if b == "+" and (tag.startswith("{{") or "raw" in tag):
            continue
        yield left + tag.replace("{a}", a).replace("{b}", b) + right
    for left, right in around:
        yield left + "{% for x in l %}" + right + "{{ x }}" + left + "{% endfor %}" + right
        yield left + "{%- for x in l -%}" + right + "{{ x }}" + left + "{%- endfor -%}" + right
        yield "{% if n %}" + left + "{# c #}" + right + "{% endif %}" + left + "{{- n -}}" + right
        yield "{% if n %}\n" + left + "{% if n %}\n" + right + "{% endif %}\n" + left + "{% endif %}\n"


class Random:
    """Templates nobody thought of, from a seed. Most fail somewhere, and then must fail on both sides; values that
    only we bound (64-bit integers) are kept small."""
    ATOMS = ["s", "empty", "sp", "uni", "multi", "n", "neg", "zero", "f", "t", "no", "nil", "l", "words", "nested", "d", "ed", "el",
             "users", "keys", "html", "undefined_thing", "0", "1", "2", "-1", "1.5", "'a'", "'A b'", "'%s'", "'l'", "''", "','", "true", "none",
             "[]", "{}", "(1, 2)", "['b', 'a']", "{'k': 'v'}", "users[0]", "users[1].name", "d.c", "range(4)", "x", "q"]
    FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "join", "join('-')", "sort", "reverse|list", "unique|list", "min",
               "max", "sum", "int", "float", "abs", "round", "round(1)", "string", "default('D')", "default('D', true)", "replace('a', 'X')", "tojson", "tojson(indent=1)",
               "map('upper')|list", "map('string')|list", "map('length')|list", "map(attribute='name')|list", "select|list", "reject|list", "select('odd')|list",
               "select('string')|list", "selectattr('age')|list", "rejectattr('name')|list", "items|list", "dictsort", "indent(1)", "e", "safe", "wordcount",
               "batch(2)|list", "slice(2)|list", "center(8)", "truncate(4, true, '', 0)", "count", "d(1)", "sort(reverse=true)", "sort(attribute='age')", "map('default', 0)|list"]
    TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false", "odd", "even",
             "lower", "upper", "eq 1", "ne 'a'", "lt 2", "ge 1", "in [1, 'a']", "divisibleby 2", "callable"]
    METHODS = [".strip()", ".upper()", ".split()", ".split('l')", ".startswith('a')", ".endswith(('d', 'e'))", ".replace('l', 'L')", ".title()", ".find('l')", ".items()|list",
               ".keys()|list", ".values()|list", ".get('a')", ".get('k', 1)", ".count('a')", ".index('a')", ".name", ".a", ".items", ".age", "[0]", "[-1]", "['a']", "[1:]", "[:-1]",
               "[::-1]", "[::2]", "[5]", ".isdigit()", ".splitlines()", ".rsplit('o', 1)", ".join(['x', 'y'])", ".format(1, 2)", ".lstrip('aH')", ".partition(',')"]
    BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]

    def __init__(self, rng):
        self.rng = rng

    def expression(self, depth):
        r, rng = self.rng.random(), self.rng
        if depth <= 0 or r < 0.15:
            return rng.choice(self.ATOMS)
        inner = self.expression(depth - 1)
        if r < 0.40:
            return f"({inner})|{rng.choice(self.FILTERS)}"
        if r < 0.60:
            return f"({inner}){rng.choice(self.METHODS)}"
        if r < 0.68:
            return f"({inner} is {rng.choice(['', 'not '])}{rng.choice(self.TESTS)})"
        if r < 0.90:
            return f"({inner} {rng.choice(self.BINARY)} {self.expression(depth - 1)})"
        if r < 0.94:
            return f"(not {inner})"
        if r < 0.97:
            return f"({inner} if {self.expression(depth - 1)} else {self.expression(depth - 1)})"
        return f"[{inner}, {self.expression(depth - 1)}]"

    def body(self, depth):
        out = []
        for _ in range(self.rng.randint(1, 3)):
            e, r = self.expression(2), self.rng.random()
            a, b = self.rng.choice(["", "", "-", "+"]), self.rng.choice(["", "", "-"])
            ws = self.rng.choice(["", " ", "\n", "\n  ", " \n "])
            if depth <= 0 or r < 0.4:
                out.append(f"{{{{{a if a != '+' else ''} {e} {b}}}}}{ws}")
            elif r < 0.6:
                out.append(f"{{%{a} for x in {e} {b}%}}{ws}{{{{ loop.index }}}}{self.body(depth - 1)}{{%{b} endfor %}}{ws}")
            elif r < 0.8:
                out.append(f"{{%{a} if {e} {b}%}}{self.body(depth - 1)}{ws}{{%{a} else %}}{self.body(depth - 1)}{{% endif {b}%}}{ws}")
            elif r < 0.9:
                out.append(f"{ws}{{%{a} set {self.rng.choice('snfl')} = {e} {b}%}}{ws}")
            else:
                out.append(f"{{%{a} set q {b}%}}{ws}{self.body(depth - 1)}{{% endset %}}[{{{{ q }}}}]")
        return "".join(out)
